// Tensor cores and the asynchronous units of sm_90.
#include <cstring>

#include "kernels/device/twin/hopper.h"
#include "kernels/device/twin/tensor_core.h"
#include "tests/gpu/ptx/decode.h"
#include "tests/gpu/ptx/spaces.h"

namespace sinew::ptx {

namespace {

using twin::Site;

int part(const Thread& thread, const Instruction& i, int k) {
  return thread.function->parts[static_cast<std::size_t>(i.parts + k)];
}

// Parts: four results, four words of A, two of B, four sums.
void multiply(Thread& thread, const Instruction& i) {
  twin::MmaArgument argument;
  for (int k = 0; k < 4; ++k) argument.a[k] = in<std::uint32_t>(thread, part(thread, i, 4 + k));
  for (int k = 0; k < 2; ++k) argument.b[k] = in<std::uint32_t>(thread, part(thread, i, 8 + k));
  for (int k = 0; k < 4; ++k) argument.d[k] = in<float>(thread, part(thread, i, 10 + k));
  twin::warp_rendezvous(~0U, twin::kMmaBf16, &argument, Site::current());
  for (int k = 0; k < 4; ++k) out<float>(thread, part(thread, i, k), argument.d[k]);
}

template <bool kTransposed>
void load_matrices(Thread& thread, const Instruction& i) {
  twin::LoadMatrixArgument argument;
  std::memcpy(argument.row, shared_operand(thread, i, i.a, sizeof argument.row),
              sizeof argument.row);
  twin::warp_rendezvous(~0U, kTransposed ? twin::kLoadMatrixTransposed : twin::kLoadMatrix,
                        &argument, Site::current());
  for (int k = 0; k < 4; ++k) out<std::uint32_t>(thread, part(thread, i, k), argument.result[k]);
}

std::uint64_t* barrier_of(const Thread& thread, const Instruction& i, int slot) {
  return reinterpret_cast<std::uint64_t*>(shared_operand(thread, i, slot, sizeof(std::uint64_t)));
}
void barrier_init(Thread& thread, const Instruction& i) {
  twin::mbarrier_init(barrier_of(thread, i, i.a), in<std::uint32_t>(thread, i.b));
}
void barrier_arrive(Thread& thread, const Instruction& i) {
  twin::mbarrier_arrive(barrier_of(thread, i, i.a), i.b < 0 ? 0 : in<std::uint32_t>(thread, i.b),
                        Site::current());
}
void barrier_try(Thread& thread, const Instruction& i) {
  out<bool>(thread, i.result,
            twin::mbarrier_try(barrier_of(thread, i, i.a), in<std::uint32_t>(thread, i.b),
                               Site::current()));
  thread.looked = true;
}

// Parts: column and row.
void load_box(Thread& thread, const Instruction& i) {
  constexpr std::size_t kBoxAlignment = 1024;
  twin::box_load(shared_place(thread, in<std::uint32_t>(thread, i.a), kBoxAlignment),
                 reinterpret_cast<const void*>(in<std::uint64_t>(thread, i.b)),
                 in<std::int32_t>(thread, part(thread, i, 0)),
                 in<std::int32_t>(thread, part(thread, i, 1)), barrier_of(thread, i, i.c),
                 Site::current());
}

// The sums belong to the product until it is waited for: their registers get them then.
template <bool kAOuter, bool kBOuter>
void product_issue(Thread& thread, const Instruction& i) {
  if (thread.sum_slots.empty()) {
    thread.sums.resize(static_cast<std::size_t>(i.part_count));
    for (int k = 0; k < i.part_count; ++k) {
      thread.sum_slots.push_back(part(thread, i, k));
      thread.sums[static_cast<std::size_t>(k)] = in<float>(thread, part(thread, i, k));
    }
  }
  for (int k = 0; k < i.part_count; ++k) {
    if (thread.sum_slots[static_cast<std::size_t>(k)] != part(thread, i, k))
      twin::fail("wgmma into other registers while products are under way is not known");
  }
  twin::product_issue({.d = thread.sums.data(),
                       .a = {in<std::uint64_t>(thread, i.a), kAOuter},
                       .b = {in<std::uint64_t>(thread, i.b), kBOuter},
                       .accumulate = in<bool>(thread, i.c),
                       .columns = i.part_count * 2},
                      Site::current());
}
void product_commit(Thread&, const Instruction&) { twin::product_commit(); }
void product_wait(Thread& thread, const Instruction& i) {
  twin::product_wait(in<std::int32_t>(thread, i.a));
  if (!twin::self().products.empty()) return;
  for (std::size_t k = 0; k < thread.sum_slots.size(); ++k)
    out<float>(thread, thread.sum_slots[k], thread.sums[k]);
  thread.sum_slots.clear();
}

void product_fence(Thread&, const Instruction&) { twin::product_fence(); }
void barrier_fence(Thread&, const Instruction&) { twin::mbarrier_fence_init(); }
// Orders what the twin executes in order.
void proxy_fence(Thread&, const Instruction&) {}

void decode_mma(Reader& reader, Instruction& instruction) {
  for (const char* word :
       {"sync", "aligned", "m16n8k16", "row", "col", "f32", "bf16", "bf16", "f32"}) {
    if (!reader.take(word)) return;
  }
  for (std::size_t k = 0; k < 4; ++k) reader.parts(k, instruction);
  if (instruction.part_count == 14) instruction.run = multiply;
}

void decode_load_matrix(Reader& reader, Instruction& instruction) {
  for (const char* word : {"sync", "aligned", "m8n8", "x4", "shared", "b16"}) {
    if (!reader.take(word)) return;
  }
  reader.parts(0, instruction);
  reader.address(1, instruction);
  const bool transposed = reader.take("trans");
  if (instruction.part_count == 4)
    instruction.run = transposed ? load_matrices<true> : load_matrices<false>;
}

void decode_barrier(Reader& reader, Instruction& instruction) {
  const bool init = reader.take("init");
  const bool arrive = reader.take("arrive");
  const bool expects = reader.take("expect_tx");
  const bool asks = reader.take("try_wait") && reader.take("parity");
  if (!reader.take("shared::cta") || reader.take_type() != Type::kB64) return;
  reader.address(init ? 0 : 1, instruction);
  if (init || expects || asks) instruction.b = reader.slot(init ? 1 : 2);
  if (init) instruction.run = barrier_init;
  if (arrive && reader.operand(0).kind == Operand::Kind::kNothing) instruction.run = barrier_arrive;
  if (asks) {
    instruction.result = reader.slot(0);
    instruction.run = barrier_try;
  }
}

void decode_box(Reader& reader, Instruction& instruction) {
  for (const char* word :
       {"bulk", "tensor", "2d", "shared::cluster", "global", "mbarrier::complete_tx::bytes"}) {
    if (!reader.take(word)) return;
  }
  for (std::size_t k = 0; k < 3; ++k) {
    if (reader.operand(k).kind != Operand::Kind::kAddress || reader.operand(k).offset != 0) return;
  }
  if (reader.operand(1).parts.size() != 2) return;
  reader.parts(1, instruction);
  instruction.a = reader.operand(0).slot;
  instruction.b = reader.operand(1).slot;
  instruction.c = reader.operand(2).slot;
  instruction.run = load_box;
}

void decode_product(Reader& reader, Instruction& instruction) {
  if (!reader.take("sync") || !reader.take("aligned")) return;
  if (reader.take("fence")) instruction.run = product_fence;
  if (reader.take("commit_group")) instruction.run = product_commit;
  if (reader.take("wait_group")) {
    instruction.a = reader.slot(0);
    instruction.run = product_wait;
  }
  if (!reader.take("mma_async")) return;
  const int columns = reader.take("m64n256k16") ? 256 : reader.take("m64n128k16") ? 128 : 0;
  for (const char* word : {"f32", "bf16", "bf16"}) {
    if (!reader.take(word)) return;
  }
  // d, descriptors of a and b, accumulate; then the signs of a and b and whether the summed
  // dimension is not the contiguous one.
  if (!reader.is(4, 1) || !reader.is(5, 1)) return;
  const bool a_outer = reader.is(6, 1);
  const bool b_outer = reader.is(7, 1);
  if (!(a_outer || reader.is(6, 0)) || !(b_outer || reader.is(7, 0))) return;
  reader.parts(0, instruction);
  instruction.a = reader.slot(1);
  instruction.b = reader.slot(2);
  instruction.c = reader.slot(3);
  if (instruction.part_count != columns / 2) return;
  if (a_outer) {
    instruction.run = b_outer ? product_issue<true, true> : product_issue<true, false>;
  } else {
    instruction.run = b_outer ? product_issue<false, true> : product_issue<false, false>;
  }
}

void decode_fence(Reader& reader, Instruction& instruction) {
  const bool init =
      reader.take("mbarrier_init") && reader.take("release") && reader.take("cluster");
  const bool proxy = reader.take("proxy") && reader.take("async") && reader.take("shared::cta");
  if (init) instruction.run = barrier_fence;
  if (proxy) instruction.run = proxy_fence;
}

}  // namespace

bool decode_tensor(Reader& reader, Instruction& instruction) {
  const std::string_view family = reader.family();
  if (family == "mma") {
    decode_mma(reader, instruction);
  } else if (family == "ldmatrix") {
    decode_load_matrix(reader, instruction);
  } else if (family == "mbarrier") {
    decode_barrier(reader, instruction);
  } else if (family == "cp") {
    decode_box(reader, instruction);
  } else if (family == "wgmma") {
    decode_product(reader, instruction);
  } else if (family == "fence") {
    decode_fence(reader, instruction);
  } else {
    return false;
  }
  return true;
}

}  // namespace sinew::ptx
