// Words that systems add to the language of dltune's orders, and what their lines consist of.
#pragma once

#include <charconv>
#include <string>
#include <system_error>
#include <vector>

namespace dltune {

// The fields of a line. The first is its word.
using Fields = std::vector<std::string>;

// A static object of this adds a word. `obey` is called with each line of that word, one line at a
// time, and returns whether it understood the line.
struct OrderWord {
  OrderWord(const std::string& word, bool (*obey)(const Fields& field));
};

// A field that holds any text: a tab, a line's end and a backslash stand behind a backslash.
bool Unescape(const std::string& text, std::string* out);

// The whole field, and nothing else, as a number from `low` to `high`.
template <typename T>
bool Number(const std::string& text, T low, T high, T* out) {
  const char* end = text.data() + text.size();
  T value{};
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end || value < low || value > high) return false;
  *out = value;
  return true;
}

}  // namespace dltune
