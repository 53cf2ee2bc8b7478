#include "tests/gpu/ptx/statement.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "sched/base/error.h"

namespace sinew::ptx {

namespace {

[[noreturn]] void refuse(const std::string& file, int line, const std::string& what) {
  throw Error("PTX " + file + ":" + std::to_string(line) + ": " + what);
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0)
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0)
    text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> result;
  while (!(text = trim(text)).empty()) {
    const std::size_t end = std::min(text.find_first_of(" \t\n"), text.size());
    result.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return result;
}

// Cut at commas that stand outside of brackets.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> result;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' || text[i] == '[') ++depth;
    if (text[i] == '}' || text[i] == ']') --depth;
    if (text[i] != ',' || depth != 0) continue;
    result.push_back(trim(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  if (!trim(text.substr(begin)).empty()) result.push_back(trim(text.substr(begin)));
  return result;
}

template <typename T>
T number(std::string_view digits, int base = 10) {
  T value{};
  std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  return value;
}

// Size of one element of .b8, .u32, ...
std::size_t type_bytes(std::string_view type) {
  const std::size_t digits = type.find_first_of("0123456789");
  return digits == std::string_view::npos ? 0 : number<std::size_t>(type.substr(digits)) / 8;
}

// ".param .align 8 .b8 name[72]", ".shared .align 16 .b8 name[32]", ".param .u64 name".
Variable variable(std::string_view text) {
  Variable result;
  const auto parts = words(text);
  std::size_t element = 1;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    if (parts[i] == ".align") {
      result.alignment = number<std::size_t>(parts[i + 1]);
    } else if (parts[i].front() == '.' && type_bytes(parts[i]) != 0) {
      element = type_bytes(parts[i]);
    }
  }
  const std::string_view name = parts.back();
  const std::size_t bracket = name.find('[');
  result.name = name.substr(0, bracket);
  result.size_bytes = element;
  if (bracket != std::string_view::npos) {
    result.size_bytes = element * number<std::size_t>(name.substr(bracket + 1));
  } else {
    result.alignment = element;
  }
  return result;
}

constexpr std::pair<std::string_view, Special> kSpecials[] = {
    {"%tid.x", Special::kThreadX},    {"%tid.y", Special::kThreadY},
    {"%tid.z", Special::kThreadZ},    {"%ctaid.x", Special::kBlockX},
    {"%ctaid.y", Special::kBlockY},   {"%ctaid.z", Special::kBlockZ},
    {"%ntid.x", Special::kThreadsX},  {"%ntid.y", Special::kThreadsY},
    {"%ntid.z", Special::kThreadsZ},  {"%nctaid.x", Special::kBlocksX},
    {"%nctaid.y", Special::kBlocksY}, {"%nctaid.z", Special::kBlocksZ},
};

// The body of one entry: registers by scope, slots for all that an operand can be.
class BodyParser {
 public:
  BodyParser(std::string_view text, int line, Function& function, const std::string& dynamic)
      : text_(text), line_(line), function_(function), dynamic_(dynamic) {}

  // From behind the opening brace to the one that closes it.
  Body run() {
    scopes_.emplace_back();
    while (!scopes_.empty()) next();
    return std::move(body_);
  }

 private:
  void next() {
    skip_space();
    if (at_ == text_.size())
      refuse(function_.file, line_, "the text ends inside " + function_.name);
    if (text_[at_] == '{') {
      scopes_.emplace_back();
      ++at_;
    } else if (text_[at_] == '}') {
      scopes_.pop_back();
      ++at_;
    } else if (!label()) {
      const std::size_t end = std::min(text_.find(';', at_), text_.size());
      const std::string_view text = trim(text_.substr(at_, end - at_));
      statement(text);
      line_ += static_cast<int>(std::count(text.begin(), text.end(), '\n'));
      at_ = std::min(end + 1, text_.size());
    }
  }

  void skip_space() {
    while (at_ < text_.size() && (std::isspace(static_cast<unsigned char>(text_[at_])) != 0 ||
                                  text_.substr(at_, 2) == "//")) {
      if (text_[at_] == '/') at_ = std::min(text_.find('\n', at_), text_.size());
      if (at_ < text_.size() && text_[at_] == '\n') ++line_;
      if (at_ < text_.size()) ++at_;
    }
  }

  // A name with one colon behind it; opcodes have two or none.
  bool label() {
    std::size_t end = at_;
    while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 ||
                                  text_[end] == '_' || text_[end] == '$'))
      ++end;
    if (end == at_ || end + 1 >= text_.size() || text_[end] != ':' || text_[end + 1] == ':')
      return false;
    body_.labels[std::string(text_.substr(at_, end - at_))] =
        static_cast<int>(body_.statements.size());
    at_ = end + 1;
    return true;
  }

  void statement(std::string_view text) {
    if (text.empty() || text.starts_with(".pragma")) return;
    if (text.starts_with(".reg")) return registers(text);
    if (text.starts_with(".shared"))
      return static_cast<void>(function_.shared.push_back(variable(text)));
    if (text.starts_with(".local")) return local(variable(text));
    if (text.front() == '.')
      refuse(function_.file, line_, "directive '" + std::string(text) + "' is not known");
    Statement result;
    result.line = line_;
    if (text.front() == '@') {
      const std::size_t end = text.find_first_of(" \t");
      result.guard_negated = text[1] == '!';
      result.guard =
          operand(text.substr(result.guard_negated ? 2 : 1, end - (result.guard_negated ? 2 : 1)))
              .slot;
      text = trim(text.substr(end));
    }
    const std::size_t end = std::min(text.find_first_of(" \t\n"), text.size());
    result.opcode = text.substr(0, end);
    if (result.opcode == "bra" || result.opcode == "bra.uni") {
      result.target = trim(text.substr(end));
    } else {
      // The clock is no value that a thread starts with.
      const bool clock = result.opcode == "mov.u64" && text.ends_with(", %globaltimer");
      if (clock) {
        result.opcode += ".globaltimer";
        text.remove_suffix(std::string_view(", %globaltimer").size());
      }
      for (const std::string_view part : split(text.substr(end)))
        result.operands.push_back(operand(part));
    }
    body_.statements.push_back(std::move(result));
  }

  // ".reg .b32 %r<105>" or ".reg .pred p".
  void registers(std::string_view text) {
    const auto parts = words(text);
    for (std::size_t i = 2; i < parts.size(); ++i) {
      std::string_view name = parts[i];
      if (name.ends_with(',')) name.remove_suffix(1);
      const std::size_t bracket = name.find('<');
      if (bracket == std::string_view::npos) {
        scopes_.back()[std::string(name)] = new_slot(~std::uint64_t{0});
        continue;
      }
      const int count = number<int>(name.substr(bracket + 1));
      for (int k = 0; k < count; ++k)
        scopes_.back()[std::string(name.substr(0, bracket)) + std::to_string(k)] =
            new_slot(~std::uint64_t{0});
    }
  }

  void local(Variable depot) {
    depot.offset =
        (function_.local_bytes + depot.alignment - 1) / depot.alignment * depot.alignment;
    function_.local_bytes = depot.offset + depot.size_bytes;
    locals_.push_back(std::move(depot));
  }

  Operand operand(std::string_view text) {
    if (text == "_") return {};
    if (text.front() == '[') return address(trim(text.substr(1, text.size() - 2)));
    if (text.front() == '{') return vector(text);
    const std::size_t bar = text.find('|');
    Operand result;
    result.kind = Operand::Kind::kSlot;
    result.slot = slot(text.substr(0, bar));
    if (bar != std::string_view::npos) result.second = slot(text.substr(bar + 1));
    return result;
  }

  Operand vector(std::string_view text) {
    Operand result;
    result.kind = Operand::Kind::kVector;
    for (const std::string_view part : split(text.substr(1, text.size() - 2)))
      result.parts.push_back(operand(part));
    return result;
  }

  // "%rd1+8", "name+4", "%rd1", or with coordinates "%rd1, {%r1, %r2}".
  Operand address(std::string_view text) {
    Operand result;
    result.kind = Operand::Kind::kAddress;
    const auto parts = split(text);
    const std::size_t plus = parts[0].find('+');
    result.slot = slot(parts[0].substr(0, plus));
    if (plus != std::string_view::npos)
      result.offset = number<std::int64_t>(parts[0].substr(plus + 1));
    if (parts.size() == 2) result.parts = vector(parts[1]).parts;
    return result;
  }

  int slot(std::string_view text) {
    text = trim(text);
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(std::string(text));
      if (found != scope->end()) return found->second;
    }
    if (std::isdigit(static_cast<unsigned char>(text.front())) != 0 || text.front() == '-')
      return constant(text);
    const auto known = others_.find(text);
    if (known != others_.end()) return known->second;
    const int made = text.front() == '%' ? special(text) : symbol(text);
    others_.emplace(text, made);
    return made;
  }

  int constant(std::string_view text) {
    std::uint64_t value = 0;
    if (text.starts_with("0f") || text.starts_with("0d") || text.starts_with("0x")) {
      value = number<std::uint64_t>(text.substr(2), 16);
    } else if (text.front() == '-') {
      value = static_cast<std::uint64_t>(number<std::int64_t>(text));
    } else {
      value = number<std::uint64_t>(text);
    }
    const auto known = constants_.find(value);
    if (known != constants_.end()) return known->second;
    return constants_[value] = new_slot(value);
  }

  int special(std::string_view text) {
    for (const auto& [name, kind] : kSpecials) {
      if (name != text) continue;
      function_.specials.emplace_back(new_slot(0), kind);
      return function_.specials.back().first;
    }
    refuse(function_.file, line_, "register '" + std::string(text) + "' is not known");
  }

  int symbol(std::string_view text) {
    const auto add = [&](SymbolKind kind, std::size_t index, std::size_t offset) {
      function_.symbols.push_back({new_slot(0), kind, index, offset});
      return function_.symbols.back().slot;
    };
    for (const Variable& parameter : function_.parameters) {
      if (parameter.name == text) return add(SymbolKind::kParameter, 0, parameter.offset);
    }
    for (std::size_t i = 0; i < function_.shared.size(); ++i) {
      if (function_.shared[i].name == text) return add(SymbolKind::kShared, i, 0);
    }
    for (const Variable& depot : locals_) {
      if (depot.name == text) return add(SymbolKind::kLocal, 0, depot.offset);
    }
    if (text == dynamic_) return add(SymbolKind::kDynamicShared, 0, 0);
    refuse(function_.file, line_, "operand '" + std::string(text) + "' is not known");
  }

  int new_slot(std::uint64_t value) {
    function_.initial.push_back(value);
    return static_cast<int>(function_.initial.size()) - 1;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_;
  Function& function_;
  const std::string& dynamic_;
  Body body_;
  std::vector<std::map<std::string, int>> scopes_;
  std::map<std::uint64_t, int> constants_;
  std::map<std::string, int, std::less<>> others_;
  std::vector<Variable> locals_;
};

}  // namespace

Source::Source(std::string file, std::string text)
    : file_(std::move(file)), text_(std::move(text)) {
  int line = 1;
  for (std::size_t at = 0; at < text_.size(); ++line) {
    const std::size_t end = std::min(text_.find('\n', at), text_.size());
    std::string_view row = std::string_view(text_).substr(at, end - at);
    constexpr std::string_view kEntry = ".visible .entry ";
    constexpr std::string_view kTarget = ".target sm_";
    if (row.starts_with(kEntry)) {
      entries_[std::string(row.substr(kEntry.size(), row.find('(') - kEntry.size()))] = {at, line};
    } else if (row.starts_with(kTarget)) {
      target_ = number<int>(row.substr(kTarget.size()));
    } else if (row.starts_with(".shared")) {
      shared_.push_back(variable(row.substr(0, row.find(';'))));
    } else if (row.starts_with(".extern .shared")) {
      dynamic_shared_ = variable(row.substr(0, row.find(';'))).name;
    } else if (row.starts_with(".func") || row.starts_with(".visible .func") ||
               row.starts_with(".const") || row.starts_with(".global") ||
               row.starts_with(".visible .global")) {
      refuse(file_, line, "'" + std::string(row.substr(0, 60)) + "' is not known");
    }
    at = end + 1;
  }
}

std::vector<std::string> Source::entries() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : entries_) names.push_back(name);
  return names;
}

Body Source::parse(const std::string& entry, Function& function) const {
  const Place& place = entries_.at(entry);
  const std::string_view text = std::string_view(text_).substr(place.begin);
  function.name = entry;
  function.file = file_;
  function.shared = shared_;
  const std::size_t open = text.find('(');
  const std::size_t close = text.find(')', open);
  for (const std::string_view part : split(text.substr(open + 1, close - open - 1))) {
    Variable parameter = variable(part);
    const std::size_t alignment = parameter.alignment;
    parameter.offset = (function.parameter_bytes + alignment - 1) / alignment * alignment;
    function.parameter_bytes = parameter.offset + parameter.size_bytes;
    function.parameters.push_back(std::move(parameter));
  }
  const std::size_t brace = text.find('{', close);
  const auto directives = words(text.substr(close + 1, brace - close - 1));
  for (std::size_t i = 0; i < directives.size(); ++i) {
    if (directives[i] != ".maxntid") continue;
    function.threads_max = 1;
    for (std::size_t k = 1; k <= 3; ++k)
      function.threads_max *= number<std::size_t>(directives[i + k]);
  }
  const std::string_view head = text.substr(0, brace + 1);
  const int line = place.line + static_cast<int>(std::count(head.begin(), head.end(), '\n'));
  return BodyParser(text.substr(brace + 1), line, function, dynamic_shared_).run();
}

}  // namespace sinew::ptx
