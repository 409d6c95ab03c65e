#pragma once

#include <span>

#include "machrun/system_library.hpp"

namespace lab {

using SymbolTable = std::span<const SystemSymbol>;

template <typename Function>
const void* as_address(Function* function) {
  return reinterpret_cast<const void*>(function);
}

// One table per part of libSystem, libobjc and Metal, each in the file that implements it.
SymbolTable error_symbols();
SymbolTable file_symbols();
SymbolTable stdio_symbols();
SymbolTable thread_symbols();
SymbolTable thread_variable_symbols();
SymbolTable frame_symbols();
SymbolTable locale_symbols();
SymbolTable jump_symbols();
SymbolTable process_symbols();
SymbolTable machine_symbols();
SymbolTable socket_symbols();
SymbolTable dyld_symbols();
SymbolTable objc_symbols();

}  // namespace lab
