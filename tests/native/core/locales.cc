// `locales FOLDER NAME`: a number as C writes it under that locale, and as JSON.
#include <clocale>
#include <cstdio>
#include <cstdlib>

#include "core/json.h"

int main(int, char** arguments) {
  setenv("LOCPATH", arguments[1], 1);
  if (!setlocale(LC_ALL, arguments[2])) return 2;
  printf("%.1f %s", 0.5, dltune::Json(0.5).text.c_str());
}
