# Builds the examples against an installed Verbena:
#
#   cmake -S . -B build -DCMAKE_PREFIX_PATH=/where/verbena/is/installed && cmake --build build
cmake_minimum_required(VERSION 3.25)
project(VerbenaExamples LANGUAGES C CXX)

find_package(verbena REQUIRED)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_EXTENSIONS OFF)

file(GLOB sources *.cc *.c)
foreach(source ${sources})
  cmake_path(GET source FILENAME name)
  string(REPLACE . - name ${name})
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE verbena::client)
endforeach()
