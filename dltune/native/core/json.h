// JSON as the plugin sends it. Messages are put together on the channel's thread, for which no op
// waits.
#pragma once

#include <locale.h>

#include <cstdio>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>

namespace dltune {

// As long as it lives, this thread writes numbers with a point, whatever the job's locale says.
class PlainNumbers {
 public:
  PlainNumbers() : plain_(newlocale(LC_ALL_MASK, "C", nullptr)), before_(uselocale(plain_)) {}
  PlainNumbers(const PlainNumbers&) = delete;
  ~PlainNumbers() {
    uselocale(before_);
    freelocale(plain_);
  }

 private:
  locale_t plain_, before_;
};

// A number, a truth value, text, or what `List` and `Object` make.
struct Json {
  Json() = default;
  Json(bool value) : text(value ? "true" : "false") {}
  template <typename Integer, typename = std::enable_if_t<std::is_integral_v<Integer>>>
  Json(Integer number) : text(std::to_string(number)) {}
  // `digits` are significant ones: ten are more than any clock here has, but not all of a double's
  Json(double number, int digits = 10) {
    const PlainNumbers plain;
    char buffer[48];
    text.assign(buffer, snprintf(buffer, sizeof buffer, "%.*g", digits, number));
  }
  Json(const char* words) : Json(std::string(words)) {}
  Json(const std::string& words) : text("\"") {
    char escape[8];
    for (unsigned char c : words) {
      if (c == '"' || c == '\\') {
        text += '\\';
        text += static_cast<char>(c);
      } else if (c < 0x20 || c >= 0x7f) {  // op names may hold any byte; ASCII stays valid JSON
        snprintf(escape, sizeof escape, "\\u%04x", c);
        text += escape;
      } else {
        text += static_cast<char>(c);
      }
    }
    text += '"';
  }
  static Json Raw(std::string text) {
    Json json;
    json.text = std::move(text);
    return json;
  }
  operator std::string() && { return std::move(text); }

  std::string text;
};

// What `make` makes of each item.
template <typename Items, typename Make>
Json List(const Items& items, const Make& make) {
  std::string text = "[";
  for (const auto& item : items) {
    const Json& json = make(item);
    if (text.size() > 1) text += ',';
    text += json.text;
  }
  return Json::Raw(text += ']');
}
template <typename Items>
Json List(const Items& items) {
  return List(items, [](const auto& item) -> const auto& { return item; });
}
inline Json List(std::initializer_list<Json> items) { return List<decltype(items)>(items); }

inline Json Object(std::initializer_list<std::pair<const char*, Json>> fields) {
  std::string text = "{";
  for (const auto& [name, value] : fields)
    text += (text.size() > 1 ? ",\"" : "\"") + std::string(name) + "\":" + value.text;
  return Json::Raw(text += '}');
}

}  // namespace dltune
