# CMake toolchain file: builds for macOS 13 on Apple silicon, on Linux, by the Zig toolchain and the static libraries that
# tests/cross/dependencies has made. LUMELIFT_CROSS is the folder that it prints.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
if(NOT LUMELIFT_CROSS)
  message(FATAL_ERROR "give -DLUMELIFT_CROSS=FOLDER: the folder that tests/cross/dependencies prints")
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LUMELIFT_CROSS)

set(CMAKE_C_COMPILER ${LUMELIFT_CROSS}/bin/cc)
set(CMAKE_CXX_COMPILER ${LUMELIFT_CROSS}/bin/c++)
set(CMAKE_AR ${LUMELIFT_CROSS}/bin/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${LUMELIFT_CROSS}/bin/ranlib CACHE FILEPATH "")
# CMake asks for Apple's tool whether or not anything uses it; the program has no library of its own whose name could be changed.
set(CMAKE_INSTALL_NAME_TOOL /bin/false CACHE FILEPATH "")
# No debug map: it would name folders of this machine.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-s")
# The wrapped compiler knows its target, headers and stubs by itself.
set(CMAKE_OSX_SYSROOT "" CACHE PATH "")
set(CMAKE_OSX_ARCHITECTURES "" CACHE STRING "")
set(CMAKE_OSX_DEPLOYMENT_TARGET "" CACHE STRING "")

set(CMAKE_FIND_ROOT_PATH ${LUMELIFT_CROSS})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${LUMELIFT_CROSS}/lib/pkgconfig)
