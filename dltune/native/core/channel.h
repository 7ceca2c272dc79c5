// The conversation with dltune over a Unix socket: it sends lines of orders, the plugin sends one
// JSON object a line. Sending never blocks an op: messages are queued for a thread of their own.
#pragma once

#include <functional>
#include <string>

#include "json.h"

namespace dltune {

// Connects, says hello, and obeys until dltune says "ready" (or 30 s have passed). Returns a
// complaint, or nothing.
std::string OpenChannel(const std::string& path, const std::string& hello);

// Queues a message; `make` runs on the channel's thread, where text is put together. One that comes
// again and again may be lost where dltune does not read as fast.
void Send(std::function<std::string()> make, bool may_be_lost = false);
// Tells dltune what did not work, in a sentence.
void Complain(const std::string& text);
// Waits until what is queued has been sent, at most a second; for the end of the process.
void Flush();

}  // namespace dltune
