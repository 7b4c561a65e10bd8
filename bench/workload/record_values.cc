#include "bench/workload/record_values.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/workload/random.h"
#include "bench/workload/value.h"

namespace verbena::bench {
namespace {

constexpr size_t kCheckSize = sizeof(uint64_t);
constexpr size_t kHeaderSize = kCheckSize + sizeof(uint32_t);
constexpr size_t kFieldHeaderSize = 2 * sizeof(uint32_t);

void AppendU32(size_t number, std::vector<char>* out) {
  const auto value = static_cast<uint32_t>(number);
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  out->insert(out->end(), bytes, bytes + sizeof(value));
}

bool TakeU32(std::string_view* rest, uint32_t* number) {
  if (rest->size() < sizeof(*number)) return false;
  std::memcpy(number, rest->data(), sizeof(*number));
  rest->remove_prefix(sizeof(*number));
  return true;
}

bool TakeBytes(std::string_view* rest, uint32_t size, std::string_view* bytes) {
  if (rest->size() < size) return false;
  *bytes = rest->substr(0, size);
  rest->remove_prefix(size);
  return true;
}

void WriteIntegrityText(std::string_view key, std::string_view field, std::span<char> out) {
  const std::string text = IntegrityText(key, field, out.size());
  if (!text.empty()) std::memcpy(out.data(), text.data(), text.size());
}

}  // namespace

// Java's String.hashCode is h = 31 * h + c over the characters, as a signed number of 32 bits.
std::string IntegrityText(std::string_view key, std::string_view field, size_t size) {
  std::string text;
  text.reserve(size + 16);
  uint32_t hash = 0;
  const auto append = [&text, &hash](std::string_view more) {
    for (const char c : more) hash = 31 * hash + static_cast<unsigned char>(c);
    text += more;
  };
  append(key);
  append(":");
  append(field);
  while (text.size() < size) {
    // The hash is of the text with the colon that has just been put behind it.
    append(":");
    append(absl::StrCat(static_cast<int32_t>(hash)));
  }
  text.resize(size);
  return text;
}

RecordValues::RecordValues(RecordFields fields, Sizes sizes)
    : fields_(std::move(fields)), sizes_(std::move(sizes)) {
  for (uint32_t i = 0; i < fields_.count; ++i) {
    names_.push_back(absl::StrCat(fields_.name_prefix, i));
  }
}

uint64_t RecordValues::SizeOf(std::string_view key, uint64_t stamp, uint32_t field) const {
  if (sizes_.constant()) return sizes_.Mean();
  return sizes_.Of(CheckOfContents(key, {}) ^ Mix64(stamp) ^ (uint64_t{field} << 32));
}

void RecordValues::AppendField(std::string_view key, uint64_t stamp, uint32_t field,
                               std::vector<char>* value) const {
  const std::string& name = names_[field];
  const uint64_t size = SizeOf(key, stamp, field);
  AppendU32(name.size(), value);
  AppendU32(size, value);
  value->insert(value->end(), name.begin(), name.end());
  value->resize(value->size() + size);
  const std::span<char> contents(value->data() + value->size() - size, size);
  if (fields_.integrity) {
    WriteIntegrityText(key, name, contents);
  } else {
    FillNoise(stamp + field, contents);
  }
}

void RecordValues::SetCheck(std::string_view key, std::vector<char>* value) const {
  const uint64_t check =
      CheckOfContents(key, {value->data() + kCheckSize, value->size() - kCheckSize});
  std::memcpy(value->data(), &check, sizeof(check));
}

void RecordValues::Fill(std::string_view key, uint64_t stamp, uint64_t size,
                        std::vector<char>* value) const {
  if (fields_.count == 1 || size != kBySizes) {
    value->resize(size != kBySizes ? size : SizeOf(key, stamp, 0));
    if (fields_.integrity && size == kBySizes) {
      WriteIntegrityText(key, names_[0], *value);
    } else {
      FillValue(key, stamp, *value);
    }
    return;
  }
  value->resize(kCheckSize);
  AppendU32(fields_.count, value);
  for (uint32_t i = 0; i < fields_.count; ++i) AppendField(key, stamp, i, value);
  SetCheck(key, value);
}

void RecordValues::Replace(std::string_view key, uint64_t stamp, uint32_t field,
                           std::string_view old, std::vector<char>* value) const {
  std::vector<FieldView> views;
  if (fields_.count == 1 || !Split(old, &views)) return Fill(key, stamp, kBySizes, value);
  value->resize(kCheckSize);
  AppendU32(fields_.count, value);
  for (uint32_t i = 0; i < fields_.count; ++i) {
    if (i == field) {
      AppendField(key, stamp, i, value);
      continue;
    }
    const FieldView& view = views[i];
    AppendU32(view.name.size(), value);
    AppendU32(view.contents.size(), value);
    value->insert(value->end(), view.name.begin(), view.name.end());
    value->insert(value->end(), view.contents.begin(), view.contents.end());
  }
  SetCheck(key, value);
}

bool RecordValues::Split(std::string_view value, std::vector<FieldView>* fields) const {
  if (value.size() < kHeaderSize) return false;
  std::string_view rest = value.substr(kCheckSize);
  uint32_t count = 0;
  if (!TakeU32(&rest, &count) || count != fields_.count) return false;
  for (uint32_t i = 0; i < count; ++i) {
    FieldView view;
    uint32_t name_size = 0;
    uint32_t size = 0;
    if (!TakeU32(&rest, &name_size) || !TakeU32(&rest, &size) ||
        !TakeBytes(&rest, name_size, &view.name) || !TakeBytes(&rest, size, &view.contents) ||
        view.name != names_[i]) {
      return false;
    }
    fields->push_back(view);
  }
  return rest.empty();
}

bool RecordValues::Verify(std::string_view key, std::string_view value) const {
  if (fields_.count == 1) {
    if (!fields_.integrity) return VerifyValue(key, value);
    return value == IntegrityText(key, names_[0], sizes_.Mean());
  }
  std::vector<FieldView> views;
  if (!Split(value, &views)) return false;
  uint64_t check = 0;
  std::memcpy(&check, value.data(), sizeof(check));
  if (check != CheckOfContents(key, value.substr(kCheckSize))) return false;
  if (!fields_.integrity) return true;
  return std::all_of(views.begin(), views.end(), [&](const FieldView& view) {
    return view.contents == IntegrityText(key, view.name, sizes_.Mean());
  });
}

uint64_t RecordValues::MeanSize() const {
  if (fields_.count == 1) return sizes_.Mean();
  uint64_t size = kHeaderSize;
  for (const std::string& name : names_) size += kFieldHeaderSize + name.size() + sizes_.Mean();
  return size;
}

}  // namespace verbena::bench
