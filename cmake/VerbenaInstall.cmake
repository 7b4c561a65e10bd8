# `cmake --install`: the client library in both forms with its headers, CMake package and .pc files,
# the programs, the documents and the examples. Components: development, runtime (the shared
# library), programs, documentation.
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/verbena)

install(DIRECTORY client/include/verbena DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT development FILES_MATCHING PATTERN *.h)

# A program that takes the shared library needs nothing of what the archive needs, so each has a
# file of its own.
install(TARGETS verbena_client_static EXPORT verbena-static
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(TARGETS verbena_client_shared EXPORT verbena-shared
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
foreach(form static shared)
  install(EXPORT verbena-${form} NAMESPACE verbena:: DESTINATION ${package_folder}
    FILE verbena-${form}-targets.cmake COMPONENT development)
endforeach()

# From 1.0 on, programs that were written for a minor version compile with each later one.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
else()
  set(compatibility SameMajorVersion)
endif()
set(package ${PROJECT_BINARY_DIR}/package)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/verbena-config.cmake.in
  ${package}/verbena-config.cmake INSTALL_DESTINATION ${package_folder}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${package}/verbena-config-version.cmake
  COMPATIBILITY ${compatibility})
install(FILES ${package}/verbena-config.cmake ${package}/verbena-config-version.cmake
  DESTINATION ${package_folder} COMPONENT development)

# pkg-config. The prefix is found from where the file lies, so that the tree can be moved.
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_LIBDIR libdir_is_absolute)
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_INCLUDEDIR includedir_is_absolute)
if(libdir_is_absolute OR includedir_is_absolute)
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
  set(pc_libdir ${CMAKE_INSTALL_FULL_LIBDIR})
  set(pc_includedir ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
    BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE pc_prefix)
  string(PREPEND pc_prefix "\${pcfiledir}/")
  set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
foreach(name verbena verbena-static)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${package}/${name}.pc @ONLY)
  install(FILES ${package}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT development)
endforeach()

# Programs.
foreach(program verbena-server verbena-cli verbena-bench)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
  endif()
endforeach()

# The load generator's workloads.
if(TARGET verbena-bench)
  install(DIRECTORY bench/workloads DESTINATION ${CMAKE_INSTALL_DATADIR}/verbena COMPONENT programs)
endif()

# Documents, and the examples with a CMakeLists.txt that builds them against what was installed. They
# lie to each other as they do in the source, so that their links hold.
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documentation)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documentation
  FILES_MATCHING PATTERN *.md PATTERN *.service)
install(FILES bench/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/bench COMPONENT documentation)
install(DIRECTORY client/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}/client COMPONENT documentation
  FILES_MATCHING PATTERN *.cc PATTERN *.c)
install(FILES client/examples/standalone.cmake RENAME CMakeLists.txt
  DESTINATION ${CMAKE_INSTALL_DOCDIR}/client/examples COMPONENT documentation)
