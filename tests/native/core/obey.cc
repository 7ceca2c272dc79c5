// Obeys the lines of standard input and answers each: with what it complains of, or an empty line.
// "?KEY", the key in hexadecimal, is answered with the version in force and that key's threads.
#include <unistd.h>

#include <iostream>

#include "core/execution.h"

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty() || line[0] != '?') {
      std::cout << dltune::Obey(line) << "\n";
      continue;
    }
    std::string key;
    for (size_t i = 1; i + 1 < line.size(); i += 2)
      key += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    const dltune::Orders* orders = dltune::OrdersFor(0);
    const dltune::OpOrder* order = orders->Find(key);
    std::cout << orders->version << " "
              << (order->by_admission ? order->work.choice.threads
                                   : order->view       ? order->view->threads()
                                                       : 0)
              << "\n";
  }
  std::cout.flush();
  _exit(0);
}
