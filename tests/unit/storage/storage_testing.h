// What the tests of the storage share: small stores, a check of all invariants, and a reader that
// follows the rules for remote readers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "server/storage/index.h"
#include "server/storage/item_listener.h"
#include "server/storage/store.h"

namespace verbena::storage {

inline std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// A store in a fresh slice of `size` bytes; null (and a failed expectation) if that fails.
std::unique_ptr<Store> MakeStore(uint64_t size, int workers = 1,
                                 uint64_t max_value_size = 8 * 1024 * 1024);
std::unique_ptr<Store> MakeStore(uint64_t size, const StoreOptions& options);

// The value of a key that is there; a failed expectation and "" if it is not.
std::string MustGet(Store& store, std::string_view key);
bool Has(Store& store, std::string_view key);
layout::Slot SlotOf(Store& store, std::string_view key);

// Puts values of each of these sizes, the largest first, until there is no memory for one more of
// any. Returns the keys.
std::vector<std::string> FillUp(Store& store, const std::vector<size_t>& sizes);

// Keeps what it is told as a map from keys to blocks, and notes contradictions.
class RecordingListener : public ItemListener {
 public:
  void OnInserted(layout::KeyHash /*hash*/, std::string_view key, layout::Slot slot) override {
    EXPECT_TRUE(items_.emplace(key, slot.offset()).second) << key;
  }
  void OnMoved(layout::KeyHash /*hash*/, std::string_view key, layout::Slot from, layout::Slot to,
               bool changed) override {
    EXPECT_EQ(items_.at(std::string(key)), from.offset());
    items_[std::string(key)] = to.offset();
    ++(changed ? changes_ : moves_);
  }
  void OnRemoved(layout::KeyHash /*hash*/, std::string_view key, layout::Slot slot) override {
    EXPECT_EQ(items_.at(std::string(key)), slot.offset());
    items_.erase(std::string(key));
  }
  const std::map<std::string, uint64_t>& items() const { return items_; }
  int changes() const { return changes_; }
  int moves() const { return moves_; }

 private:
  std::map<std::string, uint64_t> items_;
  int changes_ = 0;
  int moves_ = 0;
};

// Walks everything that a store consists of, and names the first thing that is wrong: directory,
// headers, chains, slots, items, blocks that overlap, and all counts. No other thread may use the
// store meanwhile, and no PreparedPut may exist.
absl::Status CheckInvariants(const Store& store);

// A test with a store, whose invariants hold at the end.
class CheckedStoreTest : public testing::Test {
 protected:
  explicit CheckedStoreTest(std::unique_ptr<Store> store) : store_(std::move(store)) {}
  void SetUp() override { ASSERT_NE(store_, nullptr); }
  void TearDown() override {
    if (store_ == nullptr) return;
    EXPECT_TRUE(CheckInvariants(*store_).ok()) << CheckInvariants(*store_);
  }

  std::unique_ptr<Store> store_;
};

// The same with a listener that is told of all changes. For a single thread.
class RecordedStoreTest : public CheckedStoreTest {
 protected:
  RecordedStoreTest();
  ~RecordedStoreTest() override { store_.reset(); }

  RecordingListener recorder_;
};

// A key that is `index`-th among those whose hash has the upper `prefix_bits` bits 0 and, if
// `bucket` is not negative, belongs to that bucket of its segment.
class KeyFinder {
 public:
  KeyFinder(const Store& store, unsigned prefix_bits, int bucket)
      : seed_(store.region().hash_seed()), prefix_bits_(prefix_bits), bucket_(bucket) {}
  std::string Next();

 private:
  const uint64_t seed_;
  const unsigned prefix_bits_;
  const int bucket_;
  uint64_t next_ = 0;
};

// Looks keys up as a remote reader does, from the slice's bytes alone. Not thread-safe.
class ReferenceReader {
 public:
  enum class Outcome {
    kFound,
    kAbsent,
    kUndecided,  // ask the server
  };
  struct Counts {
    uint64_t from_cache = 0;
    uint64_t not_accepted = 0;   // blocks that were read and not accepted
    uint64_t stale_entries = 0;  // directory entries that had to be read again
    uint64_t undecided = 0;
  };

  // A READ: copies bytes that may change meanwhile. The copy is complete when it returns.
  using ReadFunction = std::function<void(uint64_t offset, void* target, uint64_t size)>;

  ReferenceReader(ReadFunction read, uint64_t seed);

  // On kFound value, version and flags are set.
  Outcome Lookup(std::string_view key);

  const std::string& value() const { return value_; }
  uint64_t version() const { return version_; }
  uint16_t flags() const { return flags_; }
  const Counts& counts() const { return counts_; }

 private:
  uint64_t SegmentOf(layout::KeyHash hash);
  void RefreshEntry(layout::KeyHash hash);
  bool ReadItem(layout::Slot slot, std::string_view key);
  // Reads the key's bucket and all that hangs on it; false if the header does not cover the hash.
  bool ReadChain(layout::KeyHash hash, uint64_t segment);

  const ReadFunction read_;
  layout::RegionHeader header_{};
  std::mt19937_64 random_;
  std::vector<uint64_t> directory_;                            // a copy, refreshed entry by entry
  std::unordered_map<uint64_t, layout::Bucket> bucket_cache_;  // by offset; may be stale
  std::vector<layout::Bucket> chain_;
  std::vector<uint8_t> block_;
  std::string value_;
  uint64_t version_ = 0;
  uint16_t flags_ = 0;
  Counts counts_;
};

// READs of a live slice: copies cache lines in a random order and with pauses, as no device but the
// worst would.
ReferenceReader::ReadFunction ShuffledReads(std::span<const uint8_t> slice, uint64_t seed);

}  // namespace verbena::storage
