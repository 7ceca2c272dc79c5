#include "key.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>

#include <cstring>
#include <set>

namespace dltune {
namespace {

// Some jobs have other shapes at each step: of so many keys and sets of inputs no more are kept.
constexpr size_t kMostKeys = 1 << 17, kMostKnown = 1 << 20;

// dltune's names of types are TensorFlow's.
const char* Named(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return "float";
    case at::kDouble: return "double";
    case at::kBool: return "bool";
    case at::kInt: return "int32";
    case at::kLong: return "int64";
    case at::kShort: return "int16";
    case at::kChar: return "int8";
    case at::kByte: return "uint8";
    case at::kBFloat16: return "bfloat16";
    case at::kHalf: return "half";
    case at::kComplexFloat: return "complex64";
    case at::kComplexDouble: return "complex128";
    default: return "other";
  }
}

// Arguments that do not change the work.
bool ChangesNoWork(const std::string& name) {
  static const auto& idle =
      *new std::set<std::string>{"layout", "pin_memory", "non_blocking", "copy", "memory_format"};
  return idle.count(name) > 0;
}

// A tensor that lies in memory by its shape.
bool HasShape(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided &&
         !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() && !tensor.is_nested();
}

// Of a list; those that are not given are undefined.
std::vector<at::Tensor> TensorsOf(const c10::IValue& list) {
  if (list.isTensorList()) return list.toTensorVector();
  std::vector<at::Tensor> tensors;
  for (const std::optional<at::Tensor>& one : list.toOptionalTensorVector())
    tensors.push_back(one.value_or(at::Tensor()));
  return tensors;
}

constexpr char kEngine[] = "autograd::engine::";

Part PartOf(const std::string& name) {
  static const auto& views = *new std::set<std::string>{
      "alias", "as_strided", "chunk", "contiguous", "detach", "detach_", "diagonal", "expand",
      "expand_as", "flatten", "lift_fresh", "movedim", "narrow", "permute", "reshape",
      "_reshape_alias", "result_type", "select", "slice", "split", "split_with_sizes", "squeeze",
      "swapaxes", "t", "to", "transpose", "unbind", "unflatten", "unfold", "unsafe_split",
      "_unsafe_view", "unsqueeze", "view", "view_as"};
  // as Inductor names its kernels where it is asked to (enable_kernel_profile): graph_0_cpp_fused_add_1
  if (name.find("::") == name.npos && name.find("cpp_fused_") != name.npos) return Part::kCompiled;
  const bool around = BeginsLike(name, "autograd::") || BeginsLike(name, "profiler::") ||
                      BeginsLike(name, "torch::autograd::") || name.find("::") == name.npos;
  const bool view = BeginsLike(name, "aten::") && views.count(name.substr(6));
  return around || view ? Part::kTransparent : Part::kOp;
}

class Hash {
 public:
  explicit Hash(uint64_t seed) : hash_(seed) {}
  void Add(uint64_t value) { hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15 + (hash_ >> 29); }
  void Add(const at::Tensor& tensor) {
    if (!HasShape(tensor)) return Add(1);
    Add(static_cast<uint64_t>(tensor.scalar_type()) + 2);
    for (int64_t size : tensor.sizes()) Add(static_cast<uint64_t>(size));
  }
  void Add(const c10::IValue& value) {
    if (value.isTensor()) {
      Add(value.toTensor());
    } else if (value.isInt()) {
      Add(static_cast<uint64_t>(value.toInt()));
    } else if (value.isBool()) {
      Add(value.toBool() ? 3 : 5);
    } else if (value.isIntList()) {
      for (int64_t one : value.toIntList()) Add(static_cast<uint64_t>(one));
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const at::Tensor& one : TensorsOf(value)) Add(one);
    }
    Add(7);
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_;
};

void Join(std::string* list, const std::string& text, const char* by) {
  if (!list->empty()) *list += by;
  *list += text;
}

std::string Described(const at::Tensor& tensor) {
  std::string sizes;
  for (int64_t size : tensor.sizes()) Join(&sizes, std::to_string(size), ",");
  return std::string(Named(tensor.scalar_type())) + "[" + sizes + "]";
}

// A number, a truth value or a list of numbers; empty for what else there is. Numbers that may have a
// fraction, such as a learning rate, may be others at each step.
std::string Constant(const c10::IValue& value, const c10::Argument* argument) {
  if (argument && argument->name() == "dtype")
    return value.isInt() ? Named(static_cast<at::ScalarType>(value.toInt())) : "";
  if (argument && argument->type()->kind() == c10::TypeKind::NumberType) return "";
  if (value.isInt()) return std::to_string(value.toInt());
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (!value.isIntList()) return "";
  std::string list;
  for (int64_t one : value.toIntList()) Join(&list, std::to_string(one), ",");
  return "[" + list + "]";
}

Node* KindOf(const std::string& type, const std::string& attributes) {
  static auto& kinds = *new std::unordered_map<std::string, std::unique_ptr<Node>>;
  auto& kind = kinds[type + attributes];
  if (!kind) {
    kind = std::make_unique<Node>();
    kind->type = type;
    kind->attributes = attributes;
  }
  return kind.get();
}

Keyed Describe(const at::RecordFunction& op) {
  const auto schema = op.operator_schema();
  std::string inputs, attributes;
  size_t place = 0;
  for (const c10::IValue& value : op.inputs()) {
    const c10::Argument* argument =
        schema && place < schema->arguments().size() ? &schema->arguments()[place] : nullptr;
    place++;
    if (value.isTensor()) {
      if (HasShape(value.toTensor())) Join(&inputs, Described(value.toTensor()), ",");
    } else if (value.isOptionalTensorList()) {
      for (const at::Tensor& one : TensorsOf(value))
        if (HasShape(one)) Join(&inputs, Described(one), ",");
    } else if (value.isTensorList()) {
      int64_t elements = 0;
      const auto tensors = TensorsOf(value);
      for (const at::Tensor& one : tensors) elements += HasShape(one) ? one.numel() : 0;
      Join(&attributes,
           "tensors=" + std::to_string(tensors.size()) +
               ", elements=" + std::to_string(elements),
           ", ");
    } else if (!argument || !ChangesNoWork(argument->name())) {
      const std::string constant = Constant(value, argument);
      const std::string name =
          argument ? argument->name() : "argument_" + std::to_string(place - 1);
      if (!constant.empty()) Join(&attributes, name + "=" + constant, ", ");
    }
  }
  if (!attributes.empty()) attributes = "{" + attributes + "}";
  Node* const kind = KindOf(op.name(), attributes);
  return {kind, AddKey(*kind, inputs)};
}

}  // namespace

bool BeginsLike(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

const Name& NameOf(const char* text) {
  // these are put together for each call, and stand at another place each time
  static const auto& node = *new Name{kEngine, 0, Part::kBackward};
  if (std::strncmp(text, kEngine, sizeof kEngine - 1) == 0) return node;
  static auto& known = *new std::unordered_map<const char*, Name>;
  Name& name = known[text];
  if (name.text != text) {  // new, or another now: some names are put together for each call
    name = {text, std::hash<std::string>()(text), PartOf(text)};
  }
  return name;
}

Keyed& KeyOf(const at::RecordFunction& op, const Name& name) {
  static auto& described = *new std::unordered_map<const Key*, Keyed>;
  // by what they get, also numbers that may be others at each step
  static auto& known = *new std::unordered_map<uint64_t, Keyed*>;
  Hash hash(name.hash);
  for (const c10::IValue& value : op.inputs()) hash.Add(value);
  const auto found = known.find(hash.value());
  if (found != known.end()) return *found->second;
  Keyed* keyed;
  if (described.size() == kMostKeys) {
    keyed = Undescribed(op.name());
  } else {
    const Keyed one = Describe(op);
    keyed = &described.try_emplace(one.key, one).first->second;
  }
  if (known.size() < kMostKnown) known[hash.value()] = keyed;
  return *keyed;
}

Keyed& KeyOf(const std::string& type) {
  static auto& known = *new std::unordered_map<std::string, Keyed>;
  auto [found, fresh] = known.try_emplace(type);
  if (fresh) {
    Node* const kind = KindOf(type, "");
    found->second = {kind, AddKey(*kind, "")};
  }
  return found->second;
}

int64_t OutputBytes(const at::RecordFunction& op) {
  int64_t bytes = 0;
  const auto add = [&bytes](const at::Tensor& tensor) {
    if (HasShape(tensor)) bytes += static_cast<int64_t>(tensor.nbytes());
  };
  for (const c10::IValue& value : op.outputs()) {
    if (value.isTensor()) add(value.toTensor());
    if (value.isTensorList())
      for (const at::Tensor& one : TensorsOf(value)) add(one);
  }
  return bytes;
}

}  // namespace dltune
