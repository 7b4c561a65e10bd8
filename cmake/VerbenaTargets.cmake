# One function per kind of target, so that every target gets the same warnings, sanitizers and
# include root. Link only against the verbena:: aliases.

# The one place where warnings and sanitizers are chosen.
add_library(verbena_options INTERFACE)
add_library(verbena::options ALIAS verbena_options)
target_compile_options(verbena_options INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Wold-style-cast>
  $<$<COMPILE_LANGUAGE:C>:-Wpedantic>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  # A file's anonymous types look shared once files are compiled together.
  $<$<AND:$<BOOL:${CMAKE_UNITY_BUILD}>,$<COMPILE_LANGUAGE:CXX>>:-Wno-subobject-linkage>
  $<$<BOOL:${VERBENA_WERROR}>:-Werror>)
target_include_directories(verbena_options INTERFACE ${PROJECT_SOURCE_DIR})
target_link_options(verbena_options INTERFACE -Wl,--as-needed)
if(VERBENA_SANITIZE)
  target_compile_options(verbena_options INTERFACE
    -fsanitize=${VERBENA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(verbena_options INTERFACE -fsanitize=${VERBENA_SANITIZE})
  if(VERBENA_SANITIZE MATCHES "undefined")
    # AddressSanitizer finds null pointers anyway, and vptr would need the RTTI of every base; the two
    # take a third of the time to compile.
    target_compile_options(verbena_options INTERFACE -fno-sanitize=null,vptr)
  endif()
  if(VERBENA_SANITIZE MATCHES "thread")
    target_compile_definitions(verbena_options INTERFACE VERBENA_TSAN=1)
    # gcc 12 warns that TSan does not model fences; Verbena publishes with release stores only.
    target_compile_options(verbena_options INTERFACE -Wno-tsan)
  endif()
endif()

# verbena_library(NAME SRCS ... HDRS ... DEPS ... PRIVATE_DEPS ...) defines verbena_NAME and
# verbena::NAME. HDRS are compiled alone by the header check.
function(verbena_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;HDRS;DEPS;PRIVATE_DEPS" ${ARGN})
  set(target verbena_${name})
  if(ARG_SRCS)
    add_library(${target} STATIC ${ARG_SRCS} ${ARG_HDRS})
    target_link_libraries(${target} PUBLIC ${ARG_DEPS} PRIVATE verbena::options ${ARG_PRIVATE_DEPS})
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE ${ARG_DEPS})
    target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  endif()
  add_library(verbena::${name} ALIAS ${target})
  verbena_check_headers(${target} ${ARG_HDRS})
endfunction()

# verbena_program(verbena-server SRCS ... DEPS ... [NOT_TESTED])
# NOT_TESTED: no test runs it, so with sanitizers it is only built when asked for by name.
function(verbena_program name)
  cmake_parse_arguments(ARG "NOT_TESTED" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE verbena::options ${ARG_DEPS})
  if(ARG_NOT_TESTED AND VERBENA_SANITIZE)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# verbena_test(NAME LABEL unit|integration|conformance|lab|model|fuzz SRCS ... DEPS ...
#              [TIMEOUT seconds] [COST seconds] [ARGS ...] [SERIAL] [ONE_THREAD] [THREADED filter])
# One program with GoogleTest's main, run as one ctest test. SERIAL: nothing else runs beside it.
# COST: about how long it takes; the longest start first, so that none is left to run alone.
# ONE_THREAD: nothing in it runs beside anything else, so there is nothing that ThreadSanitizer could
# find; the preset tsan has no such test. THREADED: the cases of which that is not true, as a filter of
# GoogleTest; the preset tsan runs only these.
function(verbena_test name)
  cmake_parse_arguments(ARG "SERIAL;ONE_THREAD" "LABEL;TIMEOUT;COST;THREADED" "SRCS;DEPS;ARGS" ${ARGN})
  if(ARG_ONE_THREAD AND VERBENA_SANITIZE MATCHES "thread")
    return()
  endif()
  if(ARG_THREADED AND VERBENA_SANITIZE MATCHES "thread")
    list(APPEND ARG_ARGS "--gtest_filter=${ARG_THREADED}")
  endif()
  add_executable(${name} ${ARG_SRCS})
  set_target_properties(${name} PROPERTIES
    UNITY_BUILD ${VERBENA_UNITY_TESTS} UNITY_BUILD_BATCH_SIZE 8)
  if(VERBENA_UNITY_TESTS)
    # A file's anonymous types look shared once files are compiled together.
    target_compile_options(${name} PRIVATE
      -O1 $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
  target_link_libraries(${name} PRIVATE verbena::options ${ARG_DEPS} GTest::gmock GTest::gtest
                                        GTest::gtest_main)
  set(test ${VERBENA_TEST_PREFIX}${name})
  add_test(NAME ${test} COMMAND ${name} ${ARG_ARGS})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(VERBENA_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 3")
  endif()
  set_tests_properties(${test} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
  if(VERBENA_SANITIZE MATCHES "thread")
    # Else each process sleeps for a second before it exits.
    set_tests_properties(${test} PROPERTIES ENVIRONMENT TSAN_OPTIONS=atexit_sleep_ms=0)
  endif()
  if(ARG_COST)
    verbena_test_cost(${test} ${ARG_COST})
  endif()
  if(ARG_SERIAL)
    set_tests_properties(${test} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# verbena_test_cost(TEST SECONDS): about how long a test takes in the preset release.
function(verbena_test_cost test seconds)
  if(VERBENA_SANITIZE)
    math(EXPR seconds "${seconds} * 5")
  endif()
  set_tests_properties(${test} PROPERTIES COST ${seconds})
endfunction()

# Self-containment: each header is compiled alone, with the flags of the target that owns it. One
# that its own source file includes before anything else has been compiled alone with that.
set_property(GLOBAL PROPERTY VERBENA_HEADER_CHECKS "")
function(verbena_check_headers target)
  foreach(header ${ARGN})
    cmake_path(ABSOLUTE_PATH header BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE relative)
    cmake_path(REPLACE_EXTENSION path LAST_ONLY .cc OUTPUT_VARIABLE source)
    get_target_property(unity ${target} UNITY_BUILD)
    if(EXISTS ${source} AND NOT unity)
      file(STRINGS ${source} first LIMIT_COUNT 1 REGEX "^ *#")
      if(first STREQUAL "#include \"${relative}\"")
        continue()
      endif()
    endif()
    set_property(GLOBAL APPEND PROPERTY VERBENA_HEADER_CHECKS "${target}|${relative}")
  endforeach()
endfunction()

# `cmake --build ... --target check-headers` compiles one generated file per header.
function(verbena_add_header_checks)
  get_property(entries GLOBAL PROPERTY VERBENA_HEADER_CHECKS)
  add_custom_target(check-headers)
  foreach(entry ${entries})
    string(REPLACE "|" ";" entry "${entry}")
    list(GET entry 0 target)
    list(GET entry 1 header)
    string(MAKE_C_IDENTIFIER "${header}" id)
    set(source ${CMAKE_BINARY_DIR}/check-headers/${id}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"  // IWYU pragma: keep\n")
    add_library(check_${id} OBJECT EXCLUDE_FROM_ALL ${source})
    target_link_libraries(check_${id} PRIVATE ${target} verbena::options)
    set_target_properties(check_${id} PROPERTIES CXX_VISIBILITY_PRESET hidden)
    add_dependencies(check-headers check_${id})
  endforeach()
endfunction()
