// The driver of all fuzzers: a small mutating loop behind libFuzzer's entry point, so that a target
// runs here without clang and under libFuzzer unchanged.
//
//   NAME_fuzz [--seconds S] [--seed N] CORPUS...   replays every corpus file, then mutates them for
//   S seconds NAME_fuzz FILE                                 replays one file, a failing input for
//   instance NAME_fuzz --canary CORPUS...                   plants a fault and exits 0 only if the
//   loop finds it
//
// A target reports a fault by aborting (CHECK) or by what a sanitizer sees. The input that did it
// is written to NAME_fuzz.failed in the working directory. The seed is printed; the same seed makes
// the same inputs in the same order.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

// What the signal handler needs; it may touch nothing that allocates.
std::string g_input;
std::string g_failed_path;

void save_input(int signal) {
  const int file = ::open(g_failed_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file >= 0) {
    const bool saved = ::write(file, g_input.data(), g_input.size()) >= 0;
    ::close(file);
    const char text[] = "the failing input is in the working directory, NAME_fuzz.failed\n";
    if (saved && ::write(STDERR_FILENO, text, sizeof text - 1) < 0) ::_exit(1);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Deterministic: directories by name, so that a seed means the same everywhere.
std::vector<std::string> read_corpus(const std::vector<std::string>& paths) {
  std::vector<std::filesystem::path> files;
  for (const std::string& path : paths) {
    if (std::filesystem::is_directory(path)) {
      for (const auto& entry : std::filesystem::directory_iterator(path))
        files.push_back(entry.path());
    } else {
      files.emplace_back(path);
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> corpus;
  for (const auto& file : files) corpus.push_back(read_file(file));
  if (corpus.empty()) corpus.emplace_back();
  return corpus;
}

class Mutator {
 public:
  Mutator(std::vector<std::string> corpus, std::uint64_t seed)
      : corpus_(std::move(corpus)), random_(seed) {}

  // One to six edits of a corpus file.
  std::string next() {
    std::string input = corpus_[below(corpus_.size())];
    for (std::size_t edits = 1 + below(6); edits > 0; --edits) edit(input);
    return input;
  }

 private:
  std::size_t below(std::size_t bound) {
    return bound == 0 ? 0 : static_cast<std::size_t>(random_() % bound);
  }

  void edit(std::string& input) {
    const std::size_t at = below(input.size() + 1);
    const std::size_t length = 1 + below(std::min<std::size_t>(input.size() + 1, 24));
    switch (below(7)) {
      case 0:
        input.insert(at, 1, static_cast<char>(random_()));
        break;
      case 1:
        input.erase(at, length);
        break;
      case 2:
        input.insert(at, input.substr(below(input.size() + 1), length));
        break;
      case 3:
        input.insert(at, splice(length));
        break;
      case 4:
        swap_words(input, at);
        break;
      case 5:
        change_byte(input, at);
        break;
      case 6:
        change_digit(input, at);
        break;
    }
  }

  // From another corpus file, where the same format says other things.
  std::string splice(std::size_t length) {
    const std::string& other = corpus_[below(corpus_.size())];
    return other.substr(below(other.size() + 1), length);
  }

  void change_byte(std::string& input, std::size_t at) {
    if (at < input.size()) input[at] = static_cast<char>(random_());
  }

  // Numbers carry most of the meaning of every text format here.
  void change_digit(std::string& input, std::size_t at) {
    const std::size_t digit = input.find_first_of("0123456789", at);
    if (digit == std::string::npos) return;
    input[digit] = static_cast<char>('0' + below(10));
  }

  // Exchanges the two words after `at`.
  static void swap_words(std::string& input, std::size_t at) {
    const std::size_t first = input.find(' ', at);
    const std::size_t second = first == std::string::npos ? first : input.find(' ', first + 1);
    const std::size_t end =
        second == std::string::npos ? second : input.find_first_of(" \n", second + 1);
    if (end == std::string::npos) return;
    input = input.substr(0, first) + input.substr(second, end - second) +
            input.substr(first, second - first) + input.substr(end);
  }

  std::vector<std::string> corpus_;
  std::mt19937_64 random_;
};

struct Options {
  double seconds = 0;
  std::uint64_t seed = 1;
  bool canary = false;
  std::vector<std::string> corpus;
};

int usage(const char* name) {
  std::fprintf(stderr, "usage: %s [--seconds S] [--seed N] [--canary] CORPUS...\n", name);
  return 2;
}

// The planted fault: a corpus file that has lost one byte, at any place but the first. Rare enough
// to need the loop (one input in about a thousand), common enough for any loop that works.
bool canary_sings(const std::vector<std::string>& corpus, const std::string& input) {
  return std::any_of(corpus.begin(), corpus.end(), [&](const std::string& whole) {
    if (whole.size() != input.size() + 1) return false;
    const auto [lost, rest] = std::mismatch(whole.begin(), whole.end() - 1, input.begin());
    return lost != whole.begin() && std::equal(lost + 1, whole.end(), rest);
  });
}

int run(const Options& options) {
  using Clock = std::chrono::steady_clock;
  const std::vector<std::string> corpus = read_corpus(options.corpus);
  const auto feed = [](std::string input) {
    g_input = std::move(input);
    (void)LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(g_input.data()),
                                 g_input.size());
  };
  std::printf("seed %llu, %zu corpus files\n", static_cast<unsigned long long>(options.seed),
              corpus.size());
  if (!options.canary) {
    for (const std::string& input : corpus) feed(input);
  }
  Mutator mutator(corpus, options.seed);
  const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
  long inputs = 0;
  for (; Clock::now() < end; ++inputs) {
    std::string input = mutator.next();
    if (!options.canary) {
      feed(std::move(input));
    } else if (canary_sings(corpus, input)) {
      std::printf("planted fault found after %ld inputs\n", inputs);
      return 0;
    }
  }
  std::printf("%ld mutated inputs\n", inputs);
  return options.canary ? 1 : 0;
}

template <typename Number>
bool parse_number(const std::string& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--canary") {
      options.canary = true;
      options.seconds = 20;
    } else if (argument == "--seconds" && i + 1 < argc) {
      if (!parse_number(argv[++i], options.seconds)) return usage(argv[0]);
    } else if (argument == "--seed" && i + 1 < argc) {
      if (!parse_number(argv[++i], options.seed)) return usage(argv[0]);
    } else if (argument.rfind("--", 0) == 0) {
      return usage(argv[0]);
    } else {
      options.corpus.push_back(argument);
    }
  }
  if (options.corpus.empty()) return usage(argv[0]);
  g_failed_path = std::filesystem::path(argv[0]).filename().string() + ".failed";
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, save_input);
  return run(options);
}
