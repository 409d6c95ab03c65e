#include "cli/app.hpp"

int main(int argc, char** argv) {
  return lumelift::run_app(argc, argv);
}
