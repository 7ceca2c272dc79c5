// A graph whose nodes run in a planned order, some of them again: what reads a result later reads
// that of the last time, so that the one before need not be kept. Some tensors leave for a file in
// between, and come back.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "../../../../frameworks/tensorflow/plugin/graph_pass.h"
#include "../../../../native/core/channel.h"
#include "../sequence.h"

namespace dltune {
namespace {

// What follows a node's name, and a number, where it runs again.
constexpr char kAgain[] = "/dltune_again_";
// And where what it gives out leaves memory, or comes back.
constexpr char kOffload[] = "/dltune_offload_";
constexpr char kPrefetch[] = "/dltune_prefetch_";

using tensorflow::Edge;
using tensorflow::Graph;
using Node = tensorflow::Node;  // of a graph, not of what dltune keeps of one

using Slot = std::pair<const Node*, int>;

struct HashSlot {
  size_t operator()(const Slot& slot) const {
    return std::hash<const Node*>()(slot.first) * 31 + slot.second;
  }
};

// By what has run again, or has come back, what gives it out next.
using Latest = std::unordered_map<Slot, std::pair<Node*, int>, HashSlot>;

// Of a node or any copy of it: who reads one already may run again after the next.
std::pair<Node*, int> At(const Latest& latest, Node* node, int slot) {
  auto at = std::make_pair(node, slot);
  for (auto next = latest.find(at); next != latest.end(); next = latest.find(at)) at = next->second;
  return at;
}

std::string Input(const std::pair<Node*, int>& source) {
  return source.first->name() + ":" + std::to_string(source.second);
}

// Null where TensorFlow does not take it.
Node* Add(Graph* graph, tensorflow::NodeDef def, const Node& like) {
  absl::Status status;
  Node* node = graph->AddNode(std::move(def), &status);
  if (!status.ok()) return nullptr;
  node->set_assigned_device_name(like.assigned_device_name());
  return node;
}

// With what it reads, and what it waits for.
Node* Copy(Graph* graph, Node* node, int number, const Latest& latest) {
  std::vector<const Edge*> edges(node->in_edges().begin(), node->in_edges().end());
  // what it waits for comes last, as its definition has it
  std::stable_sort(edges.begin(), edges.end(), [](const Edge* one, const Edge* other) {
    return static_cast<unsigned>(one->dst_input()) < static_cast<unsigned>(other->dst_input());
  });
  tensorflow::NodeDef def = node->def();
  def.set_name(node->name() + kAgain + std::to_string(number));
  def.clear_input();
  for (const Edge* edge : edges)
    def.add_input(edge->IsControlEdge() ? "^" + edge->src()->name()
                                        : Input(At(latest, edge->src(), edge->src_output())));
  Node* copy = Add(graph, std::move(def), *node);
  for (const Edge* edge : edges) {
    if (!copy) break;
    if (edge->IsControlEdge()) {
      graph->AddControlEdge(edge->src(), copy, true);
    } else {
      const auto [source, slot] = At(latest, edge->src(), edge->src_output());
      graph->AddEdge(source, slot, copy, edge->dst_input());
    }
  }
  return copy;
}

// It reads the last of what has run several times before it.
void Redirect(Graph* graph, Node* node, const Latest& latest) {
  const std::vector<const Edge*> edges(node->in_edges().begin(), node->in_edges().end());
  for (const Edge* edge : edges) {
    if (edge->IsControlEdge()) continue;
    const auto [source, slot] = At(latest, edge->src(), edge->src_output());
    if (source == edge->src()) continue;
    const int to = edge->dst_input();
    graph->RemoveEdge(edge);
    graph->AddEdge(source, slot, node, to);
  }
}

// A copy to the file, or back from it, of a tensor that `node` gives out.
Node* Transfer(Graph* graph, const char* op, const std::string& name,
               const std::pair<Node*, int>& source, const Node& node, int slot, int64_t urgency) {
  tensorflow::NodeDef def;
  def.set_op(op);
  def.set_name(name);
  def.add_input(Input(source));
  (*def.mutable_attr())["T"].set_type(node.output_type(slot));
  (*def.mutable_attr())["urgency"].set_i(urgency);
  Node* transfer = Add(graph, std::move(def), node);
  if (transfer) graph->AddEdge(source.first, source.second, transfer, 0);
  return transfer;
}

// The nodes of a planned sequence, tied to each other.
class Sequence {
 public:
  explicit Sequence(Graph* graph) : graph_(graph) {}

  // False where TensorFlow does not take it. `waits`: it may wait for another kernel, and so holds
  // nothing up.
  bool Run(Node* node, bool waits) {
    const int number = times_[node]++;
    if (number == 0) {
      Redirect(graph_, node, latest_);
    } else {
      Node* copy = Copy(graph_, node, number, latest_);
      if (!copy) return false;
      for (int slot = 0; slot < node->num_outputs(); slot++)
        latest_[At(latest_, node, slot)] = {copy, slot};
      node = copy;
    }
    // after what hands a result back no function may have anything
    if (waits || node->IsRetval()) return true;
    Follow(node);
    before_ = node;
    leaving_.clear();
    return true;
  }

  bool Leave(Node* node, int slot, int64_t urgency) {
    const auto source = At(latest_, node, slot);
    const std::string name = node->name() + kOffload + std::to_string(left_.size());
    Node* left = Transfer(graph_, "DltuneOffload", name, source, *node, slot, urgency);
    if (!left) return false;
    if (before_) graph_->AddControlEdge(before_, left, true);
    left_.push_back({left, {node, slot}});
    return true;
  }

  // What comes next waits until that has left.
  void Left(int number) { leaving_.push_back(left_[number].first); }

  bool ComeBack(int number, int64_t urgency) {
    const auto& [left, of] = left_[number];
    const std::string name = of.first->name() + kPrefetch + std::to_string(number);
    Node* back =
        Transfer(graph_, "DltunePrefetch", name, {left, 0}, *of.first, of.second, urgency);
    if (!back) return false;
    Follow(back);
    latest_[At(latest_, of.first, of.second)] = {back, 0};
    return true;
  }

 private:
  void Follow(Node* node) {
    if (before_) graph_->AddControlEdge(before_, node, true);
    for (Node* left : leaving_) graph_->AddControlEdge(left, node, true);
  }

  Graph* const graph_;
  Latest latest_;
  std::unordered_map<const Node*, int> times_;
  Node* before_ = nullptr;
  std::vector<std::pair<Node*, std::pair<Node*, int>>> left_;
  std::vector<Node*> leaving_;  // that the next waits for
};

// Where there is an order for the graph with this signature.
void Rewrite(Graph* graph, const std::string& signature) {
  const std::vector<Move> sequence = SequenceOf(signature);
  if (sequence.empty()) return;
  const std::string here = "in the graph " + signature + " ";
  std::unordered_map<std::string, Node*> by_name;
  for (Node* node : graph->op_nodes()) by_name[node->name()] = node;
  std::unordered_set<const Node*> ran;
  int left = 0;
  for (const Move& move : sequence) {
    if (move.kind == Move::kOffloaded || move.kind == Move::kPrefetch) {
      if (move.number >= left) return Complain(here + "a tensor returns to memory that has not left it");
      continue;
    }
    auto found = by_name.find(move.node);
    if (found == by_name.end())
      return Complain("the graph " + signature + " has no node " + move.node +
                      ", which the plan needs");
    const Node& node = *found->second;
    if (move.kind == Move::kOffload) {
      if (!ran.count(&node) || move.slot >= node.num_outputs() ||
          !tensorflow::DataTypeCanUseMemcpy(node.output_type(move.slot)))
        return Complain(here + move.node + " has no output that can leave memory at that point");
      left++;
      continue;
    }
    for (const Edge* edge : node.in_edges())
      if (edge->src()->IsOp() && !ran.count(edge->src()))
        return Complain(here + move.node + " waits for " + edge->src()->name() +
                        ", which the plan runs later");
    if (!ran.insert(&node).second && IsStateful(node))
      return Complain(here + move.node + " keeps state and cannot run again");
  }
  Sequence rewritten(graph);
  for (const Move& move : sequence) {
    Node* node = move.node.empty() ? nullptr : by_name[move.node];
    bool good = true;
    if (move.kind == Move::kRun) {
      good = rewritten.Run(node, MayWait(node->type_string()));
    } else if (move.kind == Move::kOffload) {
      good = rewritten.Leave(node, move.slot, move.urgency);
    } else if (move.kind == Move::kOffloaded) {
      rewritten.Left(move.number);
    } else {
      good = rewritten.ComeBack(move.number, move.urgency);
    }
    if (!good)
      return Complain(here + "nodes cannot run as planned" +
                      (node ? ": TensorFlow does not accept a copy of " + node->name() : ""));
  }
}

const GraphPass g_rewrite(GraphPass::kRewrite, Rewrite);

}  // namespace
}  // namespace dltune
