# libquern, shared and static, with no symbol visible but those of quern.h; and what `cmake --install` puts where.
include(GNUInstallDirs)

set(library_rooms room_base room_model room_text room_codegen room_cpu room_cuda room_engine quern_embedded)
set_target_properties(${library_rooms} PROPERTIES C_VISIBILITY_PRESET hidden)
set(library_objects "")
foreach(room IN LISTS library_rooms)
  list(APPEND library_objects $<TARGET_OBJECTS:${room}>)
endforeach()

# The static archives that -DQUERN_STATIC_DEPS=ON links are not made for shared objects; that option is for the
# binary.
set(quern_libraries quern_static)
if(NOT QUERN_STATIC_DEPS)
  add_library(quern_shared SHARED ${library_objects})
  target_link_libraries(quern_shared PRIVATE quern_flags quern_yaml quern_pcre2 quern_xxhash quern_jansson Threads::Threads m
                        ${CMAKE_DL_LIBS})
  set_target_properties(quern_shared PROPERTIES OUTPUT_NAME quern VERSION ${PROJECT_VERSION} SOVERSION 0
                                                LINKER_LANGUAGE C)
  list(APPEND quern_libraries quern_shared)
endif()

# One object of all rooms, in which names that are not quern.h's have become local.
set(library_object ${CMAKE_CURRENT_BINARY_DIR}/libquern.o)
add_custom_command(OUTPUT ${library_object}
  COMMAND ${CMAKE_LINKER} -r -o ${library_object} ${library_objects}
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${library_object}
  DEPENDS ${library_rooms} ${library_objects}
  COMMAND_EXPAND_LISTS VERBATIM)
set_source_files_properties(${library_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_library(quern_static STATIC ${library_object})
set_target_properties(quern_static PROPERTIES OUTPUT_NAME quern LINKER_LANGUAGE C)

# The package finds its prefix from where it lies, so that an installed tree can be moved.
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/quern.pc.in ${CMAKE_CURRENT_BINARY_DIR}/quern.pc @ONLY)

install(TARGETS quern ${quern_libraries}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/runtime/engine/quern.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/quern.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The manual page and the completions come out of the binary, so that they are those of its options. A binary for
# another machine cannot be asked.
if(NOT CMAKE_CROSSCOMPILING)
  set(shell_dir ${CMAKE_CURRENT_BINARY_DIR}/shell)
  add_custom_command(OUTPUT ${shell_dir}/quern.1 ${shell_dir}/quern ${shell_dir}/_quern ${shell_dir}/quern.fish
    COMMAND ${CMAKE_COMMAND} -E make_directory ${shell_dir}
    COMMAND quern man > ${shell_dir}/quern.1
    COMMAND quern completion bash > ${shell_dir}/quern
    COMMAND quern completion zsh > ${shell_dir}/_quern
    COMMAND quern completion fish > ${shell_dir}/quern.fish
    DEPENDS quern
    VERBATIM)
  add_custom_target(quern_shell ALL DEPENDS ${shell_dir}/quern.1)
  install(FILES ${shell_dir}/quern.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${shell_dir}/quern DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${shell_dir}/_quern DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${shell_dir}/quern.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
