// Ops that write a tensor to the file beside memory, and bring it back.
#include "../storage.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_tensor_data.h"

namespace dltune {
namespace {

using namespace tensorflow;

REGISTER_OP("DltuneOffload")
    .Input("tensor: T")
    .Output("place: variant")
    .Attr("T: type")
    .Attr("urgency: int")
    .SetIsStateful()
    .SetShapeFn(shape_inference::ScalarShape);

REGISTER_OP("DltunePrefetch")
    .Input("place: variant")
    .Output("tensor: T")
    .Attr("T: type")
    .Attr("urgency: int")
    .SetIsStateful()
    .SetShapeFn(shape_inference::UnknownShape);

// Where a tensor is now. It never leaves its process.
struct Place {
  std::shared_ptr<Stored> stored;
  TensorShape shape;

  std::string TypeName() const { return "dltune::Place"; }
  void Encode(VariantTensorData*) const {}
  bool Decode(const VariantTensorData&) { return false; }
};

int64_t UrgencyOf(OpKernelConstruction* context) {
  int64_t urgency = 0;
  context->SetStatus(context->GetAttr("urgency", &urgency));
  return urgency;
}

Copied Ending(OpKernelContext* context, AsyncOpKernel::DoneCallback done) {
  return [=](const std::string& error) {
    if (!error.empty()) context->SetStatus(absl::InternalError(error));
    done();
  };
}

// Until the copy is done the executor holds the tensor, afterwards this does no more.
class Offload : public AsyncOpKernel {
 public:
  explicit Offload(OpKernelConstruction* context)
      : AsyncOpKernel(context), urgency_(UrgencyOf(context)) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const Tensor& tensor = context->input(0);
    const absl::string_view data = tensor.tensor_data();
    Tensor* place = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, {}, &place), done);
    std::string error;
    std::shared_ptr<Stored> stored = Reserve(data.size(), &error);
    OP_REQUIRES_ASYNC(context, stored, absl::InternalError(error), done);
    place->scalar<Variant>()() = Place{stored, tensor.shape()};
    Write(stored, data.data(), urgency_, Ending(context, std::move(done)));
  }

 private:
  const int64_t urgency_;
};

class Prefetch : public AsyncOpKernel {
 public:
  explicit Prefetch(OpKernelConstruction* context)
      : AsyncOpKernel(context), urgency_(UrgencyOf(context)) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const Place* place = context->input(0).scalar<Variant>()().get<Place>();
    OP_REQUIRES_ASYNC(context, place, absl::InternalError("a tensor was not stored"), done);
    Tensor* tensor = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, place->shape, &tensor), done);
    Read(place->stored, const_cast<char*>(tensor->tensor_data().data()), urgency_,
         Ending(context, std::move(done)));
  }

 private:
  const int64_t urgency_;
};

REGISTER_KERNEL_BUILDER(Name("DltuneOffload").Device(DEVICE_CPU), Offload);
REGISTER_KERNEL_BUILDER(Name("DltunePrefetch").Device(DEVICE_CPU), Prefetch);

}  // namespace
}  // namespace dltune
