// A file for which tensors leave memory, and a copy engine for each direction: of the copies that
// wait it does the one that will be waited for first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace dltune {

// Bytes in the file. Their space is given back with this.
class Stored {
 public:
  Stored(int64_t offset, size_t bytes) : offset(offset), bytes(bytes) {}
  ~Stored();
  const int64_t offset;
  const size_t bytes;
};

// Called on the engine's thread, with what went wrong or nothing.
using Copied = std::function<void(const std::string& error)>;

// The folder in which the file is made once it is needed, without a name: it is gone with the
// process.
void SetFolder(const std::string& folder);
// Space for so many bytes; null where there is no file, and why.
std::shared_ptr<Stored> Reserve(size_t bytes, std::string* error);
// Of copies in the same direction that with the lowest `urgency` first. What is copied must stay
// where it is until `copied` is called.
void Write(std::shared_ptr<Stored> stored, const char* data, int64_t urgency, Copied copied);
void Read(std::shared_ptr<Stored> stored, char* data, int64_t urgency, Copied copied);

}  // namespace dltune
