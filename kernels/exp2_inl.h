// 2^x over a vector type V (see gemm_tile_inl.h).
#pragma once

#include <cstdint>

namespace sinew::kernels {
namespace {

template <class V>
typename V::Vector constant(float value) {
  return V::broadcast(&value);
}

// 2^x for x <= 127, relative error below 1.5 u, u = 2^-24 (2 u where a multiply-add rounds twice);
// exactly 1 at 0 and exactly 0 up to V::kLeastPower; NaN stays NaN. x = n + f with |f| <= 1/2; 2^f
// by the polynomial of degree 6 with constant term 1 and the least maximal relative error (Remez'
// algorithm; 2.6e-9 before rounding).
template <class V>
typename V::Vector exp2(typename V::Vector x) {
  x = V::max(constant<V>(V::kLeastPower), x);
  const auto n = V::round(x);
  const auto f = V::subtract(x, n);
  auto p = constant<V>(0x1.470b4ap-13F);
  p = V::multiply_add(p, f, constant<V>(0x1.5f7276p-10F));
  p = V::multiply_add(p, f, constant<V>(0x1.3b270ep-7F));
  p = V::multiply_add(p, f, constant<V>(0x1.c6ae72p-5F));
  p = V::multiply_add(p, f, constant<V>(0x1.ebfbe2p-3F));
  p = V::multiply_add(p, f, constant<V>(0x1.62e432p-1F));
  p = V::multiply_add(p, f, constant<V>(1.0F));
  return V::scale_by_power(p, n);
}

}  // namespace
}  // namespace sinew::kernels
