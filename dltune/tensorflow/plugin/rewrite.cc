// A graph whose nodes run in a planned order, some of them again: what reads a result later reads
// that of the last time, so that the one before need not be kept.
#include "rewrite.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../../native/core/channel.h"
#include "../../native/core/sequence.h"

namespace dltune {
namespace {

using tensorflow::Edge;
using tensorflow::Graph;
using Node = tensorflow::Node;  // of a graph, not of what dltune keeps of one

// By what has run again, its next copy.
using Latest = std::unordered_map<const Node*, Node*>;

// Of a node or any copy of it: who reads one already may run again after the next.
Node* At(const Latest& latest, Node* node) {
  for (auto next = latest.find(node); next != latest.end(); next = latest.find(node))
    node = next->second;
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
                                        : At(latest, edge->src())->name() + ":" +
                                              std::to_string(edge->src_output()));
  absl::Status status;
  Node* copy = graph->AddNode(std::move(def), &status);
  if (!status.ok()) return nullptr;
  copy->set_assigned_device_name(node->assigned_device_name());
  for (const Edge* edge : edges) {
    if (edge->IsControlEdge())
      graph->AddControlEdge(edge->src(), copy, true);
    else
      graph->AddEdge(At(latest, edge->src()), edge->src_output(), copy, edge->dst_input());
  }
  return copy;
}

// It reads the last of what has run several times before it.
void Redirect(Graph* graph, Node* node, const Latest& latest) {
  const std::vector<const Edge*> edges(node->in_edges().begin(), node->in_edges().end());
  for (const Edge* edge : edges) {
    Node* source = At(latest, edge->src());
    if (edge->IsControlEdge() || source == edge->src()) continue;
    const int from = edge->src_output(), to = edge->dst_input();
    graph->RemoveEdge(edge);
    graph->AddEdge(source, from, node, to);
  }
}

}  // namespace

bool IsStateful(const Node& node) {
  const auto& reads = node.input_types();
  return node.op_def().is_stateful() ||
         std::any_of(reads.begin(), reads.end(),
                     [](auto type) { return tensorflow::IsRefType(type); });
}

void Rewrite(Graph* graph, const std::string& signature,
             const std::function<bool(const std::string&)>& waits) {
  const std::vector<std::string> sequence = SequenceOf(signature);
  if (sequence.empty()) return;
  std::unordered_map<std::string, Node*> by_name;
  for (Node* node : graph->op_nodes()) by_name[node->name()] = node;
  std::unordered_set<const Node*> ran;
  for (const std::string& name : sequence) {
    auto found = by_name.find(name);
    if (found == by_name.end())
      return Complain("the graph " + signature + " has no node " + name + ", which the plan orders");
    for (const Edge* edge : found->second->in_edges())
      if (edge->src()->IsOp() && !ran.count(edge->src()))
        return Complain("in the graph " + signature + " " + name + " waits for " +
                        edge->src()->name() + ", which the plan runs later");
    if (!ran.insert(found->second).second && IsStateful(*found->second))
      return Complain("in the graph " + signature + " " + name + " keeps state and cannot run again");
  }
  Latest latest;
  std::unordered_map<const Node*, int> times;
  Node* before = nullptr;
  for (const std::string& name : sequence) {
    Node* node = by_name[name];
    const int number = times[node]++;
    if (number == 0) {
      Redirect(graph, node, latest);
    } else {
      Node* copy = Copy(graph, node, number, latest);
      if (!copy) return Complain("the graph " + signature + " cannot run " + name + " again");
      latest[At(latest, node)] = copy;
      node = copy;
    }
    // what may wait for another kernel holds nothing up; after what hands a result back no function
    // may have anything
    if (waits(node->type_string()) || node->IsRetval()) continue;
    if (before) graph->AddControlEdge(before, node, true);
    before = node;
  }
}

}  // namespace dltune
