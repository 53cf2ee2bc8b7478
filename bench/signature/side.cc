// Compiled twice: the second time `comm` stands for comm_unsigned.
#include "bench/signature/side.h"

#include "comm/communicator.h"

namespace sinew::comm {

namespace {

class Side : public bench::SignatureSide {
 public:
  [[nodiscard]] int rank() const override { return communicator_->rank(); }
  [[nodiscard]] int world() const override { return communicator_->world(); }
  void calls(int count) override {
    double value = 0;
    for (int call = 0; call < count; ++call)
      communicator_->all_reduce(&value, &value, 1, DType::kF64, ReduceOp::kSum);
  }
  void max_over_ranks(double* values, std::int64_t count) override {
    communicator_->all_reduce(values, values, count, DType::kF64, ReduceOp::kMax);
  }
  void barrier() override { communicator_->barrier(); }

 private:
  std::unique_ptr<Communicator> communicator_ = Communicator::from_mpi({});
};

}  // namespace

std::unique_ptr<bench::SignatureSide> signature_side() { return std::make_unique<Side>(); }

}  // namespace sinew::comm
