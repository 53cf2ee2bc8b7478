#include "model/token_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "sched/base/error.h"

namespace sinew::model {

namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::int64_t kHeaderBytes = 1024;  // llm.c: 256 int32
constexpr std::int32_t kMagicU16 = 20240520;
constexpr std::int32_t kMagicU32 = 20240801;

constexpr std::array<std::string_view, 6> kNames = {"auto", "text",    "jsonl",
                                                    "llmc", "nanogpt", "megatron"};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::int32_t magic_of(std::span<const std::byte> bytes) {
  std::int32_t magic = 0;
  if (bytes.size() >= sizeof magic) std::memcpy(&magic, bytes.data(), sizeof magic);
  return magic;
}

TokenRun own(const std::vector<std::int32_t>& tokens, std::string_view format) {
  TokenRun run;
  run.width = width_for(tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end()));
  run.owned.resize(tokens.size() * static_cast<std::size_t>(run.width));
  write_tokens(tokens, run.width, run.owned.data());
  run.tokens = run.owned.data();
  run.count = static_cast<std::int64_t>(tokens.size());
  run.format = format;
  return run;
}

void encode(std::string_view text, const Bpe* bpe, std::vector<std::int32_t>& tokens) {
  if (bpe != nullptr) {
    bpe->encode(text, tokens);
  } else {
    for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  }
}

}  // namespace

TokenFormat parse_token_format(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<TokenFormat>(i);
  }
  throw UsageError(fmt::format(
      "--data-format '{}'; legal values: auto, text, jsonl, llmc, nanogpt, megatron", name));
}

namespace {

// Files of other kinds that would be trained on as text.
void refuse_packed(std::string_view path, std::span<const std::byte> bytes) {
  struct Kind {
    std::string_view magic;
    const char* name;
  };
  constexpr std::array kKinds = {Kind{"\x1f\x8b", "gzip"},
                                 Kind{"PK\x03\x04", "zip"},
                                 Kind{"\x28\xb5\x2f\xfd", "zstd"},
                                 Kind{"\xfd"
                                      "7zXZ",
                                      "xz"},
                                 Kind{"BZh", "bzip2"},
                                 Kind{"PAR1", "parquet"},
                                 Kind{"\x89HDF", "HDF5"},
                                 Kind{"\x93NUMPY", "NumPy"}};
  for (const Kind& kind : kKinds) {
    if (!text_of(bytes).starts_with(kind.magic)) continue;
    throw UsageError(fmt::format(
        "data '{}' is a {} file; legal: text, .jsonl, or .bin of tokens (--data-format text reads "
        "its bytes all the same)",
        path, kind.name));
  }
}

}  // namespace

TokenFormat find_token_format(std::string_view path, std::span<const std::byte> bytes,
                              bool has_index) {
  const std::int32_t magic = magic_of(bytes);
  if (magic == kMagicU16 || magic == kMagicU32) return TokenFormat::kLlmc;
  if (path.ends_with(".jsonl")) return TokenFormat::kJsonl;
  if (!path.ends_with(".bin")) {
    refuse_packed(path, bytes);
    return TokenFormat::kText;
  }
  return has_index ? TokenFormat::kMegatron : TokenFormat::kNanogpt;
}

TokenRun read_llmc(std::span<const std::byte> bytes, const std::string& where) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  const std::int32_t magic = magic_of(bytes);
  if (magic != kMagicU16 && magic != kMagicU32) {
    throw UsageError(fmt::format("data '{}': magic {}; llm.c's are {} (uint16) and {} (uint32)",
                                 where, magic, kMagicU16, kMagicU32));
  }
  if (size < kHeaderBytes) {
    throw UsageError(fmt::format("data '{}': {} bytes, shorter than llm.c's header of {}", where,
                                 size, kHeaderBytes));
  }
  std::int32_t header[3] = {};
  std::memcpy(header, bytes.data(), sizeof header);
  const std::int32_t version = magic == kMagicU16 ? 1 : 7;
  TokenRun run;
  run.width = magic == kMagicU16 ? 2 : 4;
  run.format = magic == kMagicU16 ? "llm.c uint16" : "llm.c uint32";
  if (header[1] != version) {
    throw UsageError(fmt::format("data '{}': llm.c version {} for magic {}; legal value: {}", where,
                                 header[1], magic, version));
  }
  run.count = header[2];
  const std::int64_t expected = kHeaderBytes + run.count * run.width;
  if (run.count < 0 || expected != size) {
    throw UsageError(
        fmt::format("data '{}': the header promises {} tokens ({} bytes), the file has {} bytes",
                    where, run.count, expected, size));
  }
  run.tokens = bytes.data() + kHeaderBytes;
  return run;
}

TokenRun read_nanogpt(std::span<const std::byte> bytes, const std::string& where) {
  if (bytes.size() % 2 != 0) {
    throw UsageError(fmt::format(
        "data '{}': {} bytes are no whole number of uint16 tokens (a .bin file without llm.c's "
        "header is nanoGPT's; data_format text reads bytes)",
        where, bytes.size()));
  }
  TokenRun run;
  run.tokens = bytes.data();
  run.count = static_cast<std::int64_t>(bytes.size() / 2);
  run.width = 2;
  run.format = "nanoGPT uint16";
  return run;
}

bool is_converted(TokenFormat format, const Bpe* bpe) {
  return format == TokenFormat::kJsonl || bpe != nullptr;
}

namespace {

bool is_blank(std::byte byte) {
  const char c = static_cast<char>(byte);
  return c == ' ' || c == '\n';
}

// Whether a file may be cut before byte `at`: JSON behind a line's end; text before a blank that
// follows a visible character of one byte, since no token of a tokenizer holds both.
bool may_cut(TokenFormat format, std::span<const std::byte> bytes, std::size_t at) {
  const std::byte before = bytes[at - 1];
  if (format == TokenFormat::kJsonl) return before == std::byte{'\n'};
  const bool visible = before > std::byte{' '} && before < std::byte{0x7F};
  return visible && is_blank(bytes[at]);
}

// The first place at or behind part/parts of the file where it may be cut.
std::size_t cut_of(TokenFormat format, std::span<const std::byte> bytes, int part, int parts) {
  if (part == 0) return 0;
  std::size_t at = bytes.size() / static_cast<std::size_t>(parts) * static_cast<std::size_t>(part);
  at = part == parts ? bytes.size() : std::max<std::size_t>(at, 1);
  while (at < bytes.size() && !may_cut(format, bytes, at)) ++at;
  return at;
}

void convert_jsonl(std::span<const std::byte> bytes, const Bpe* bpe, const std::string& where,
                   std::int64_t line_number, std::vector<std::int32_t>& tokens) {
  std::string_view rest = text_of(bytes);
  while (!rest.empty()) {
    ++line_number;
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const nlohmann::json document = nlohmann::json::parse(line, nullptr, false);
    if (document.is_discarded() || !document.is_object() || !document.contains("text") ||
        !document["text"].is_string()) {
      throw UsageError(
          fmt::format("data '{}': line {} is no JSON object with a \"text\" that is a string",
                      where, line_number));
    }
    encode(document["text"].get<std::string>(), bpe, tokens);
    if (bpe == nullptr) {
      tokens.push_back('\n');
    } else if (bpe->end_of_text() >= 0) {
      tokens.push_back(bpe->end_of_text());
    }
  }
}

}  // namespace

std::span<const std::byte> part_of(TokenFormat format, std::span<const std::byte> bytes, int part,
                                   int parts) {
  const std::size_t begin = cut_of(format, bytes, part, parts);
  return bytes.subspan(begin, cut_of(format, bytes, part + 1, parts) - begin);
}

std::vector<std::int32_t> convert(TokenFormat format, std::span<const std::byte> part,
                                  const Bpe* bpe, const std::string& where,
                                  std::int64_t lines_before) {
  std::vector<std::int32_t> tokens;
  if (format == TokenFormat::kJsonl) {
    convert_jsonl(part, bpe, where, lines_before, tokens);
  } else {
    encode(text_of(part), bpe, tokens);
  }
  return tokens;
}

int width_for(std::int32_t largest) { return largest < 1 << 8 ? 1 : largest < 1 << 16 ? 2 : 4; }

void write_tokens(std::span<const std::int32_t> tokens, int width, std::byte* target) {
  for (const std::int32_t token : tokens) {
    std::memcpy(target, &token, static_cast<std::size_t>(width));
    target += width;
  }
}

std::string_view converted_format(TokenFormat format, const Bpe* bpe) {
  if (format != TokenFormat::kJsonl) return "text, byte pairs";
  return bpe != nullptr ? "JSONL, byte pairs" : "JSONL, bytes";
}

void require_tokens(TokenFormat format, std::int64_t count, const std::string& where) {
  if (format == TokenFormat::kJsonl && count == 0)
    throw UsageError(fmt::format("data '{}' holds no document", where));
}

TokenRun read_text(std::span<const std::byte> bytes, const Bpe* bpe) {
  if (bpe != nullptr) {
    return own(convert(TokenFormat::kText, bytes, bpe, ""),
               converted_format(TokenFormat::kText, bpe));
  }
  TokenRun run;
  run.tokens = bytes.data();
  run.count = static_cast<std::int64_t>(bytes.size());
  run.width = 1;
  run.format = "bytes";
  return run;
}

TokenRun read_jsonl(std::span<const std::byte> bytes, const Bpe* bpe, const std::string& where) {
  const std::vector<std::int32_t> tokens = convert(TokenFormat::kJsonl, bytes, bpe, where);
  require_tokens(TokenFormat::kJsonl, static_cast<std::int64_t>(tokens.size()), where);
  return own(tokens, converted_format(TokenFormat::kJsonl, bpe));
}

namespace {

constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);

// most: the largest token that the type or this program can hold; what lies above is negative or
// too large, and where the type has such values every token is looked at.
struct ElementType {
  std::uint8_t code;
  int bytes;
  std::uint64_t most;
  bool looked_at;
};
constexpr std::array kElementTypes = {
    ElementType{1, 1, UINT8_MAX, false}, ElementType{3, 2, INT16_MAX, true},
    ElementType{4, 4, INT32_MAX, true}, ElementType{5, 8, INT32_MAX, true},
    ElementType{8, 2, UINT16_MAX, false}};

// The index file: what was found, checked against both files' sizes.
class MegatronIndex {
 public:
  MegatronIndex(std::span<const std::byte> index, std::size_t data_bytes, const std::string& where)
      : index_(index), where_(where) {
    require(index.size() >= kFixedBytes && text_of(index.first(9)) == kIndexMagic,
            "the index does not begin with MMIDIDX");
    const auto version = at<std::uint64_t>(9);
    require(version == 1, fmt::format("index version {}; legal value: 1", version));
    const auto code = at<std::uint8_t>(17);
    const auto type = std::find_if(kElementTypes.begin(), kElementTypes.end(),
                                   [&](const ElementType& t) { return t.code == code; });
    require(type != kElementTypes.end(),
            fmt::format("token type code {}; legal values: 1 (uint8), 3 (int16), 4 (int32), "
                        "5 (int64), 8 (uint16)",
                        code));
    type_ = *type;
    const auto sequences = at<std::uint64_t>(18);
    const auto documents = at<std::uint64_t>(26);
    const std::uint64_t room = index.size() - kFixedBytes;
    require(
        sequences <= room / 12 && documents <= room / 8 && sequences * 12 + documents * 8 == room,
        fmt::format("{} sequences and {} documents do not fill the index of {} bytes", sequences,
                    documents, index.size()));
    sequences_ = static_cast<std::int64_t>(sequences);
    for (std::int64_t i = 0; i < sequences_; ++i) check(i, static_cast<std::int64_t>(data_bytes));
  }

  [[nodiscard]] const ElementType& type() const { return type_; }
  [[nodiscard]] int width() const { return type_.bytes; }
  [[nodiscard]] std::int64_t sequences() const { return sequences_; }
  [[nodiscard]] std::int64_t length(std::int64_t i) const {
    return at<std::int32_t>(kFixedBytes + static_cast<std::size_t>(i) * 4);
  }
  // In bytes of the data file.
  [[nodiscard]] std::int64_t begin(std::int64_t i) const {
    return at<std::int64_t>(kFixedBytes + static_cast<std::size_t>(sequences_) * 4 +
                            static_cast<std::size_t>(i) * 8);
  }

 private:
  static constexpr std::size_t kFixedBytes = 34;

  template <typename V>
  [[nodiscard]] V at(std::size_t offset) const {
    V value;
    std::memcpy(&value, index_.data() + offset, sizeof value);
    return value;
  }
  void require(bool holds, const std::string& what) const {
    if (!holds) throw UsageError(fmt::format("data '{}': {}", where_, what));
  }
  void check(std::int64_t i, std::int64_t data_bytes) const {
    const std::int64_t from = begin(i);
    const bool inside = length(i) >= 0 && from >= 0 && from <= data_bytes &&
                        length(i) * width() <= data_bytes - from;
    require(inside, fmt::format("sequence {} ({} tokens at byte {}) is not within the {} bytes of "
                                "the .bin file",
                                i, length(i), from, data_bytes));
  }

  std::span<const std::byte> index_;
  const std::string& where_;
  ElementType type_{};
  std::int64_t sequences_ = 0;
};

// Sequences that follow each other in the file need no copy.
bool follow_each_other(const MegatronIndex& index) {
  for (std::int64_t i = 1; i < index.sequences(); ++i) {
    if (index.begin(i) != index.begin(i - 1) + index.length(i - 1) * index.width()) return false;
  }
  return true;
}

std::int32_t token_at(const std::byte* data, const ElementType& type, const std::string& where) {
  std::uint64_t token = 0;
  std::memcpy(&token, data, static_cast<std::size_t>(type.bytes));
  if (token > type.most)
    throw UsageError(fmt::format("data '{}': the number {:#x} is no token", where, token));
  return static_cast<std::int32_t>(token);
}

}  // namespace

TokenRun read_megatron(std::span<const std::byte> index_bytes, std::span<const std::byte> bytes,
                       const std::string& where) {
  const MegatronIndex index(index_bytes, bytes.size(), where);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < index.sequences(); ++i) count += index.length(i);
  if (!index.type().looked_at && follow_each_other(index)) {
    TokenRun run;
    run.tokens = index.sequences() > 0 ? bytes.data() + index.begin(0) : bytes.data();
    run.count = count;
    run.width = index.width();
    run.format = "Megatron";
    return run;
  }
  // Sequences may share bytes; a file of a few may then claim more tokens than memory holds.
  if (count > static_cast<std::int64_t>(bytes.size()) / index.width()) {
    throw UsageError(fmt::format("data '{}': its sequences overlap ({} tokens in {} bytes)", where,
                                 count, bytes.size()));
  }
  std::vector<std::int32_t> tokens;
  tokens.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < index.sequences(); ++i) {
    for (std::int64_t j = 0; j < index.length(i); ++j)
      tokens.push_back(
          token_at(bytes.data() + index.begin(i) + j * index.width(), index.type(), where));
  }
  return own(tokens, "Megatron");
}

}  // namespace sinew::model
