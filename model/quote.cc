#include "model/quote.h"

#include <nlohmann/json.hpp>

namespace sinew::model {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace sinew::model
