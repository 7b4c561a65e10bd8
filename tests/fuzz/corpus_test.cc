// Runs the fuzz targets without a fuzzer: over the corpus, over every truncation of it, and over a
// fixed number of inputs made from it by mutation. The seed is printed and can be given as
// VERBENA_FUZZ_SEED; VERBENA_FUZZ_INPUTS changes how many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/fuzz/reader_targets.h"
#include "tests/fuzz/soft_targets.h"
#include "tests/fuzz/wire_targets.h"

namespace verbena::fuzz {
namespace {

using Bytes = std::vector<uint8_t>;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::vector<Bytes> LoadCorpus(const std::string& name) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(VERBENA_CORPUS_DIR) / name)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

// Changes bytes, numbers and lengths the way that breaks decoders.
Bytes Mutate(Bytes bytes, const std::vector<Bytes>& corpus, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  const uint64_t rounds = 1 + below(4);
  for (uint64_t i = 0; i < rounds; ++i) {
    const size_t at = below(bytes.size());
    switch (below(6)) {
      case 0:  // a bit
        if (!bytes.empty()) bytes[at] ^= static_cast<uint8_t>(1U << below(8));
        break;
      case 1: {  // a number at its limits
        constexpr uint8_t kLimits[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
        const size_t count = std::min(size_t{1} << below(4), bytes.size() - at);
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, kLimits[below(5)]);
        break;
      }
      case 2:  // shorter
        bytes.resize(at);
        break;
      case 3:  // longer
        bytes.resize(bytes.size() + below(40), static_cast<uint8_t>(random()));
        break;
      case 4: {  // a piece of another input
        const Bytes& other = corpus[below(corpus.size())];
        const size_t from = below(other.size());
        const size_t count = std::min(below(64), std::min(other.size() - from, bytes.size() - at));
        std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(from), count,
                    bytes.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      }
      default:  // the length that a message claims, made true again, so that more is reached
        if (bytes.size() >= 4) {
          bytes.resize(bytes.size() / 8 * 8);
          for (size_t b = 0; b < 4 && b < bytes.size(); ++b) {
            bytes[b] = static_cast<uint8_t>(bytes.size() >> (8 * b));
          }
        }
        break;
    }
  }
  return bytes;
}

void RunTarget(const std::string& name, void (*target)(std::span<const uint8_t>),
               uint64_t usual_inputs = 200'000) {
  const std::vector<Bytes> corpus = LoadCorpus(name);
  ASSERT_FALSE(corpus.empty()) << "no corpus in " << VERBENA_CORPUS_DIR << "/" << name;
  for (const Bytes& bytes : corpus) {
    for (size_t size = 0; size <= bytes.size(); ++size) {
      // Memory of exactly that size, so that a sanitizer sees every byte too far.
      target(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)));
    }
  }
  const uint64_t seed = FromEnvironment("VERBENA_FUZZ_SEED", 20240611);
  const uint64_t inputs = FromEnvironment("VERBENA_FUZZ_INPUTS", usual_inputs);
  std::printf("%s: seed %llu, %llu inputs\n", name.c_str(), static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(inputs));
  std::mt19937_64 random(seed);
  for (uint64_t i = 0; i < inputs; ++i) {
    target(Mutate(corpus[random() % corpus.size()], corpus, random));
  }
}

TEST(FuzzCorpus, Handshake) { RunTarget("handshake", Handshake); }
TEST(FuzzCorpus, Request) { RunTarget("request", Request); }
TEST(FuzzCorpus, Response) { RunTarget("response", Response); }
TEST(FuzzCorpus, Values) { RunTarget("values", Values); }
TEST(FuzzCorpus, ScanAnswer) { RunTarget("scananswer", ScanAnswer); }
TEST(FuzzCorpus, Slice) { RunTarget("slice", Slice); }
TEST(FuzzCorpus, Reader) { RunTarget("reader", Reader, 50'000); }
TEST(FuzzCorpus, SplitReader) { RunTarget("splitreader", SplitReader, 20'000); }
TEST(FuzzCorpus, Preload) { RunTarget("preload", Preload, 20'000); }
TEST(FuzzCorpus, SoftSetup) { RunTarget("softsetup", SoftSetup, 10'000); }

}  // namespace
}  // namespace verbena::fuzz
