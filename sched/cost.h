// Cost: how long a collective takes in the alpha-beta-gamma model, as its three coefficients.
//
// The model: every rank has one port for sending and one for receiving, usable at the same time. A
// message of n bytes holds the sender's and the receiver's port for alpha + n beta; reducing n
// bytes takes a rank n gamma. Each coefficient is the longest chain of events with only that one
// counted.
#pragma once

#include <cstdint>

namespace sinew::sched {

// What the model charges.
struct Prices {
  double alpha_s = 0;
  double beta_s_per_byte = 0;
  double gamma_s_per_byte = 0;
};

struct Cost {
  double rounds = 0;   // coefficient of alpha
  double bytes = 0;    // coefficient of m * beta, m the bytes of the operation's full vector
  double reduced = 0;  // coefficient of m * gamma

  // full_bytes: m.
  [[nodiscard]] double seconds(const Prices& prices, std::int64_t full_bytes) const {
    const auto m = static_cast<double>(full_bytes);
    return rounds * prices.alpha_s + bytes * m * prices.beta_s_per_byte +
           reduced * m * prices.gamma_s_per_byte;
  }
};

}  // namespace sinew::sched
