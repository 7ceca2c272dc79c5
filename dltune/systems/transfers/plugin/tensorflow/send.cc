// Sends go in the order that dltune gives them: each has a number in its graph, and a kernel in the
// place of TensorFlow's own that waits for its turn.
#include <map>
#include <set>
#include <vector>

#include "../../../../frameworks/tensorflow/plugin/capture.h"
#include "../../../../frameworks/tensorflow/plugin/graph_pass.h"
#include "../../../../native/core/child.h"
#include "../handover.h"
#include "tensorflow/core/framework/allocation_description.pb.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace dltune {
namespace {

using namespace tensorflow;

// Attribute of a send that goes in a planned order: its place among all that its graph sends to the
// receiver. It stands in the graph itself, for it may be another process that runs it.
constexpr char kPlace[] = "_dltune_place";

// A tensor's memory, and who is to know when the transport needs it no more: it holds large tensors
// until they are written to the connection.
class Lent : public TensorBuffer {
 public:
  Lent(const Tensor& tensor, std::shared_ptr<Handover> handover)
      : TensorBuffer(const_cast<char*>(tensor.tensor_data().data())),
        tensor_(tensor),
        handover_(std::move(handover)) {}
  ~Lent() override { handover_->Taken(size()); }

  size_t size() const override { return tensor_.TotalBytes(); }
  TensorBuffer* root_buffer() override { return this; }
  bool OwnsMemory() const override { return false; }
  void FillAllocationDescription(AllocationDescription* description) const override {
    description->set_requested_bytes(size());
  }

 private:
  const Tensor tensor_;
  const std::shared_ptr<Handover> handover_;
};

const FrameAndIter kOutside(0, 0);  // of any loop, where nearly all sends are

class OrderedSend : public AsyncOpKernel {
 public:
  explicit OrderedSend(OpKernelConstruction* context) : AsyncOpKernel(context) {
    int64_t incarnation;
    OP_REQUIRES_OK(context, context->GetAttr("send_device", &sender_));
    OP_REQUIRES_OK(context, context->GetAttr("recv_device", &receiver_));
    OP_REQUIRES_OK(context, context->GetAttr("send_device_incarnation", &incarnation));
    OP_REQUIRES_OK(context, context->GetAttr("tensor_name", &tensor_));
    incarnation_ = static_cast<uint64_t>(incarnation);
    OP_REQUIRES_OK(context, KeyAt(kOutside, &outside_));
    if (!context->GetAttr("_hostmem_sendrecv", &in_call_).ok()) in_call_ = false;
    if (!context->GetAttr(kPlace, &place_).ok()) place_ = -1;
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const Tensor& tensor = context->input(0);
    // one of these is made for each run of a graph, and calls back when it goes as when it cancels
    CancellationManager* run = context->cancellation_manager();
    if (place_ < 0 || !run || InChild()) {
      context->SetStatus(Give(context, tensor));
      done();
      return;
    }
    auto handover = HandoverOf(run, graph_, receiver_, [run](std::function<void()> over) {
      return run->RegisterCallback(run->get_cancellation_token(), std::move(over));
    });
    // strings hold their values elsewhere, so it cannot be seen when they are taken
    const bool lent = !context->is_input_dead() && DataTypeCanUseMemcpy(tensor.dtype()) &&
                      tensor.TotalBytes() > 0;
    handover->Arrive(place_, lent ? tensor.TotalBytes() : 0, [=, this, &tensor] {
      context->SetStatus(
          Give(context, lent ? Tensor(tensor.dtype(), tensor.shape(),
                                      core::RefCountPtr<TensorBuffer>(new Lent(tensor, handover)))
                             : tensor));
      done();
    });
  }

 private:
  absl::Status Give(OpKernelContext* context, const Tensor& tensor) {
    Rendezvous::Args args;
    args.device_context = context->op_device_context();
    args.alloc_attrs = context->input_alloc_attr(0);
    const FrameAndIter turn = in_call_ && context->call_frame()
                                  ? FrameAndIter(reinterpret_cast<uint64_t>(context->call_frame()), 0)
                                  : context->frame_iter();
    if (turn == kOutside)
      return context->rendezvous()->Send(outside_, args, tensor, context->is_input_dead());
    Rendezvous::ParsedKey key;
    absl::Status parsed = KeyAt(turn, &key);
    if (!parsed.ok()) return parsed;
    return context->rendezvous()->Send(key, args, tensor, context->is_input_dead());
  }

  absl::Status KeyAt(const FrameAndIter& turn, Rendezvous::ParsedKey* key) const {
    return Rendezvous::ParseKey(
        Rendezvous::CreateKey(sender_, incarnation_, receiver_, tensor_, turn), key);
  }

  std::string sender_, receiver_, tensor_;
  uint64_t incarnation_ = 0;
  bool in_call_ = false;
  int64_t place_ = -1;
  const int64_t graph_ = GraphOf(*this);
  Rendezvous::ParsedKey outside_;
};

// Puts it in the place of TensorFlow's own, for graphs made from now on. TensorFlow takes the kernel
// with the highest priority; its own has none.
void RegisterOrderedSend() {
  static kernel_factory::OpKernelRegistrar registered(
      KernelDefBuilder("_Send").Device(DEVICE_CPU).Priority(1).Build(), "OrderedSend",
      [](OpKernelConstruction* context) -> OpKernel* { return new OrderedSend(context); });
}

const bool g_registers = (WhenOrdered(RegisterOrderedSend), true);

// "/job:worker/task:0" of a device's whole name.
std::string TaskOf(const std::string& device) {
  DeviceNameUtils::ParsedName name;
  if (!DeviceNameUtils::ParseFullName(device, &name) || !name.has_job) return "";
  return "/job:" + name.job + "/task:" + std::to_string(name.has_task ? name.task : 0);
}

// The tensor's name without the number of its edge, "edge_12_weights/read".
std::string TensorOf(const std::string& rendezvous) {
  size_t at = rendezvous.rfind("edge_", 0) == 0 ? 5 : 0;
  while (at && at < rendezvous.size() && isdigit(rendezvous[at])) at++;
  return at && at < rendezvous.size() && rendezvous[at] == '_' ? rendezvous.substr(at + 1)
                                                               : rendezvous;
}

// The nodes that run once in each step, and soon: nothing before them waits for another kernel,
// another process, or a loop's turn.
std::set<const tensorflow::Node*> Prompt(const tensorflow::Graph& graph) {
  std::set<const tensorflow::Node*> prompt;
  std::vector<tensorflow::Node*> order;
  GetReversePostOrder(graph, &order);
  for (const tensorflow::Node* node : order) {
    if (!node->IsSend() && (node->IsControlFlow() || MayWait(node->type_string()))) continue;
    bool all = true;
    for (const Edge* edge : node->in_edges())
      all = all && (!edge->src()->IsOp() || prompt.count(edge->src()));
    if (all) prompt.insert(node);
  }
  return prompt;
}

// Numbers what this graph sends to other tasks in the planned order. What cannot come promptly is
// left out: what comes before it would wait for it, and it perhaps for them.
void NumberSends(tensorflow::Graph* graph, const std::string&) {
  if (!HasOrders()) return;
  const std::set<const tensorflow::Node*> prompt = Prompt(*graph);
  // by receiver; equal ranks by the number of their nodes
  std::map<std::string, std::map<std::pair<int, int>, tensorflow::Node*>> ranked;
  for (tensorflow::Node* node : graph->op_nodes()) {
    if (node->type_string() != "_Send" || !prompt.count(node)) continue;
    const std::string receiver = TaskOf(GetNodeAttrString(node->attrs(), "recv_device"));
    if (receiver.empty() || receiver == TaskOf(GetNodeAttrString(node->attrs(), "send_device"))) continue;
    const int rank = RankOf(receiver, TensorOf(GetNodeAttrString(node->attrs(), "tensor_name")));
    if (rank >= 0) ranked[receiver][{rank, node->id()}] = node;
  }
  for (auto& [receiver, sends] : ranked) {
    int64_t place = 0;
    for (auto& [rank, node] : sends) node->AddAttr(kPlace, place++);
  }
}

const GraphPass g_numbering(GraphPass::kMark, NumberSends);

}  // namespace
}  // namespace dltune
