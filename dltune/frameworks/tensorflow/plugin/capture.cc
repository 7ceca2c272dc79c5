#include "capture.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "../../../native/core/channel.h"
#include "../../../native/core/child.h"
#include "graph_pass.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/graph/graph.h"

namespace dltune {
namespace {

using namespace tensorflow;

constexpr char kMark[] = "_dltune";  // graph number << 32 | node index

// Numbers of graphs begin at another one in each process: marks travel with the parts of a graph
// that other processes run.
const int64_t kFirstNumber = std::random_device()() >> 2;

// -1: it has none.
int64_t MarkOf(const OpKernel& kernel) {
  const auto& attributes = kernel.def().attr();
  auto found = attributes.find(kMark);
  return found == attributes.end() ? -1 : found->second.i();
}

uint64_t Mix(uint64_t h, uint64_t x) {
  h ^= x + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  return h * 0xff51afd7ed558ccdull;
}
uint64_t HashText(const std::string& text) {
  uint64_t h = 1469598103934665603ull;  // FNV-1a: stable between processes and machines
  for (unsigned char c : text) h = (h ^ c) * 1099511628211ull;
  return h;
}

bool Contains(const std::string& text, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return text.find(part) != std::string::npos; });
}

std::string Short(const AttrValue& value) {
  switch (value.value_case()) {
    case AttrValue::kI:
      return std::to_string(value.i());
    case AttrValue::kF: {
      const PlainNumbers plain;
      return std::to_string(value.f());
    }
    case AttrValue::kB:
      return value.b() ? "true" : "false";
    case AttrValue::kS:
      return value.s().size() <= 32 ? std::string(value.s()) : "";
    case AttrValue::kType:
      return DataTypeString(value.type());
    case AttrValue::kList:
      if (value.list().i_size()) return List(value.list().i());
      if (value.list().b_size()) return List(value.list().b(), [](bool b) { return int{b}; });
      return List(value.list().s(), [](const auto& s) { return Json::Raw(std::string(s)); });
    default:
      return "";  // functions, constants' values, shapes: other work shows in the inputs
  }
}

// Where a send, a receive or a collective meets its partner. These stand for themselves: some are
// drawn anew at each start of a server.
bool IsEndpoint(const std::string& type, const std::string& attribute) {
  static const std::set<std::string> kRendezvous = {
      "tensor_name", "send_device", "recv_device", "send_device_incarnation", "client_terminated"};
  static const std::set<std::string> kGroup = {"group_key", "instance_key"};
  if (Contains(type, {"Collective"})) return kGroup.count(attribute) > 0;
  return Contains(type, {"Send", "Recv"}) && kRendezvous.count(attribute) > 0;
}

// The attributes that change the work, in a fixed order. Names of resources do not.
std::string Attributes(const NodeDef& def) {
  std::vector<std::string> parts;
  static const std::set<std::string> kIdle = {
      "T", "dtype", "N", "container", "shared_name", "debug_name", "allowed_devices", "seed",
      "seed2", "Index", "index", "use_locking", "is_filter_const", "validate_shape"};
  for (const auto& [name, value] : def.attr()) {
    if (IsEndpoint(def.op(), name) || name[0] == '_' || kIdle.count(name)) continue;
    std::string text = Short(value);
    if (!text.empty() && text != "[]")
      parts.push_back(std::string(name) + "=" + text);
  }
  std::sort(parts.begin(), parts.end());
  std::string out;
  for (auto& part : parts) out += (out.empty() ? "{" : ", ") + part;
  return out.empty() ? out : out + "}";
}

// The number that an attribute is, or that the input of that name is fixed at in the graph; -1 where
// it is neither.
int64_t Number(const tensorflow::Node& node, const std::string& name) {
  if (const AttrValue* value = node.attrs().Find(name)) return value->i();
  for (int i = 0; i < node.op_def().input_arg_size(); ++i) {
    const tensorflow::Node* from = nullptr;
    if (node.op_def().input_arg(i).name() != name || !node.input_node(i, &from).ok()) continue;
    const AttrValue* value = from->IsConstant() ? from->attrs().Find("value") : nullptr;
    Tensor tensor;
    if (value && tensor.FromProto(value->tensor()) && tensor.NumElements() == 1 &&
        tensor.dtype() == DT_INT32)
      return tensor.flat<int32_t>()(0);
  }
  return -1;
}

std::string Text(const tensorflow::Node& node, const char* attribute) {
  const AttrValue* value = node.attrs().Find(attribute);
  return value ? std::string(value->s()) : std::string();
}

// Where it meets its partner, as JSON: rendezvous, devices of sender and receiver, members of the
// group; null for a node that has none, or whose group is computed while it runs.
Json Partner(const tensorflow::Node& node) {
  if (Contains(node.type_string(), {"Collective"})) {
    const int64_t group = Number(node, "group_key"), instance = Number(node, "instance_key");
    if (group < 0 || instance < 0) return Json::Raw("null");
    const std::string name = std::to_string(group) + "/" + std::to_string(instance);
    return List({name, "", "", Number(node, "group_size")});
  }
  if (!node.attrs().Find("tensor_name") || !Contains(node.type_string(), {"Send", "Recv"}))
    return Json::Raw("null");
  return List({Text(node, "tensor_name"), Text(node, "send_device"), Text(node, "recv_device"), 0});
}

// The graph's structure without its names, which change between runs of a script.
std::string Signature(const tensorflow::Graph& graph) {
  std::vector<tensorflow::Node*> order;
  GetReversePostOrder(graph, &order, [](const tensorflow::Node* a, const tensorflow::Node* b) {
    return a->id() < b->id();
  });
  std::vector<uint64_t> hash(graph.num_node_ids(), 0);
  std::vector<uint64_t> all;
  for (const tensorflow::Node* node : order) {
    if (!node->IsOp()) continue;
    uint64_t h = Mix(HashText(node->type_string()), HashText(Attributes(node->def())));
    std::vector<std::pair<int, uint64_t>> inputs;
    for (const Edge* edge : node->in_edges())
      if (edge->src()->IsOp())
        inputs.emplace_back(edge->dst_input(), Mix(hash[edge->src()->id()], edge->src_output()));
    std::sort(inputs.begin(), inputs.end());
    for (auto& [port, from] : inputs) h = Mix(Mix(h, port), from);
    hash[node->id()] = h;
    all.push_back(h);
  }
  std::sort(all.begin(), all.end());
  uint64_t sum = all.size();
  for (uint64_t h : all) sum = Mix(sum, h);
  char text[17];
  snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(sum));
  return text;
}

// Passes of systems. They are added while other files are initialised, maybe before this one is.
std::vector<std::pair<GraphPass::Stage, GraphPass::Run>>& Passes() {
  static auto& passes = *new std::vector<std::pair<GraphPass::Stage, GraphPass::Run>>;
  return passes;
}

void RunPasses(GraphPass::Stage stage, tensorflow::Graph* graph, const std::string& signature) {
  for (auto& [its, run] : Passes())
    if (its == stage) run(graph, signature);
}

void Capture(const std::string& device, const std::string& function, tensorflow::Graph* graph) {
  auto mine = std::make_unique<dltune::Graph>();
  mine->signature = Signature(*graph);
  RunPasses(GraphPass::kRewrite, graph, mine->signature);
  std::unordered_map<int, int> index;  // node id -> index
  for (tensorflow::Node* node : graph->op_nodes()) {
    auto copy = std::make_unique<dltune::Node>();
    copy->graph = mine.get();
    copy->index = static_cast<int>(mine->nodes.size());
    copy->name = node->name();
    copy->type = node->type_string();
    copy->attributes = Attributes(node->def());
    copy->waits = MayWait(copy->type);
    copy->cluster = Contains(copy->type, {"Xla"}) || node->attrs().Find("_XlaMustCompile");
    index[node->id()] = copy->index;
    mine->nodes.push_back(std::move(copy));
  }
  dltune::Graph* kept = AddGraph(std::move(mine));
  if (!kept) return;
  RunPasses(GraphPass::kMark, graph, kept->signature);
  std::vector<Json> nodes;
  for (tensorflow::Node* node : graph->op_nodes()) {
    const int i = index[node->id()];
    node->AddAttr(kMark, (kFirstNumber + kept->id) << 32 | i);
    std::vector<const Edge*> edges;
    for (const Edge* edge : node->in_edges())
      if (edge->src()->IsOp()) edges.push_back(edge);
    std::sort(edges.begin(), edges.end(), [](const Edge* a, const Edge* b) {
      return std::make_pair(a->dst_input(), a->src()->id()) <
             std::make_pair(b->dst_input(), b->src()->id());
    });
    std::vector<int> data, slots, control;
    for (const Edge* edge : edges) {
      (edge->IsControlEdge() ? control : data).push_back(index[edge->src()->id()]);
      if (!edge->IsControlEdge()) slots.push_back(edge->src_output());
    }
    nodes.push_back(List({node->name(), node->type_string(), List(data), List(control),
                          kept->nodes[i]->waits, List(slots), Partner(*node), IsStateful(*node)}));
  }
  const int id = kept->id;
  const std::string signature = kept->signature;
  const bool xla = std::any_of(kept->nodes.begin(), kept->nodes.end(),
                               [](const auto& node) { return node->cluster; });
  Send([=] {
    return Object({{"type", "graph"},
                   {"id", id},
                   {"signature", signature},
                   {"name", function},
                   {"device", device},
                   {"xla", xla},
                   {"nodes", List(nodes)}});
  });
}

bool IsBoundary(const tensorflow::Node& node) {
  return node.IsArg() || node.IsRetval() || node.IsConstant() || node.IsSend() || node.IsRecv();
}

// Runs last: what it sees is what the executor will run, after Grappler, oneDNN and partitioning.
class CapturePass : public GraphOptimizationPass {
 public:
  absl::Status Run(const GraphOptimizationPassOptions& options) override {
    if (!options.partition_graphs || InChild()) return absl::OkStatus();
    std::string function;
    if (options.function_def) function = options.function_def->signature().name();
    for (auto& [device, graph] : *options.partition_graphs) {
      // an eager op comes as a graph of its own, with only its arguments and results around it
      int ops = 0;
      for (const tensorflow::Node* node : graph->op_nodes()) ops += !IsBoundary(*node);
      if (ops > 1) Capture(device, function, graph.get());
    }
    return absl::OkStatus();
  }
};
REGISTER_OPTIMIZATION(OptimizationPassRegistry::POST_PARTITIONING, 1 << 20, CapturePass);

}  // namespace

GraphPass::GraphPass(Stage stage, Run run) { Passes().emplace_back(stage, run); }

bool MayWait(const std::string& type) {
  return Contains(type, {"Iterator", "Dataset", "Queue", "PyFunc", "Optional", "Barrier", "Reader",
                         "Staging", "Stage", "Unstage", "Collective", "Horovod", "Nccl", "Mutex",
                         "Save", "Restore", "_Send", "_Recv", "HostSend", "HostRecv", "Remote",
                         "Rpc", "PartitionedCall", "While", "Print", "Summary"});
}

bool IsStateful(const tensorflow::Node& node) {
  const auto& reads = node.input_types();
  return node.op_def().is_stateful() || std::any_of(reads.begin(), reads.end(), IsRefType);
}

Node* NodeOf(const OpKernel& kernel) {
  const int64_t mark = MarkOf(kernel);
  if (mark < 0) return nullptr;
  Graph* graph = FindGraph(static_cast<int>((mark >> 32) - kFirstNumber));
  const size_t index = static_cast<size_t>(mark & 0xffffffff);
  return graph && index < graph->nodes.size() ? graph->nodes[index].get() : nullptr;
}

int64_t GraphOf(const OpKernel& kernel) { return MarkOf(kernel) >> 32; }

uint64_t HashInputs(OpKernelContext* context) {
  uint64_t h = context->num_inputs();
  for (int i = 0; i < context->num_inputs(); i++) {
    if (!context->has_input(i) || context->input_is_ref(i)) continue;
    const TensorShape& shape = context->input(i).shape();
    h = Mix(h, context->input_dtype(i) << 8 | shape.dims());
    for (int d = 0; d < shape.dims(); d++) h = Mix(h, shape.dim_size(d));
  }
  return h;
}

uint64_t HashCluster(const OpKernel& kernel, OpKernelContext* context) {
  return Mix(Mix(HashText(kernel.type_string()), HashText(kernel.name())), HashInputs(context));
}

std::string DescribeInputs(OpKernelContext* context) {
  std::string out;
  for (int i = 0; i < context->num_inputs(); i++) {
    if (i) out += ",";
    if (!context->has_input(i)) {
      out += "none";
      continue;
    }
    out += DataTypeString(context->input_dtype(i));
    if (context->input_is_ref(i)) {
      const Tensor tensor = context->mutable_input(i, /*lock_held=*/false);
      out += tensor.IsInitialized() ? tensor.shape().DebugString() : "[?]";
    } else {
      out += context->input(i).shape().DebugString();
    }
  }
  return out;
}

}  // namespace dltune
