# Embeds kernel_src/, model_configs/ and model_configs/tokenizers/ into a static library
# (runtime/model/embedded.h), so that one file `quern` runs from any folder.
file(GLOB_RECURSE embedded_files CONFIGURE_DEPENDS
     ${CMAKE_CURRENT_SOURCE_DIR}/kernel_src/*.cu ${CMAKE_CURRENT_SOURCE_DIR}/kernel_src/*.cuh
     ${CMAKE_CURRENT_SOURCE_DIR}/model_configs/*.yaml ${CMAKE_CURRENT_SOURCE_DIR}/model_configs/templates/*.jinja)
set(embedded_c ${CMAKE_CURRENT_BINARY_DIR}/embedded_files.c)
add_custom_command(OUTPUT ${embedded_c}
  COMMAND ${CMAKE_COMMAND} -DOUT=${embedded_c} -DROOT=${CMAKE_CURRENT_SOURCE_DIR} "-DFILES=${embedded_files}"
          -P ${CMAKE_CURRENT_SOURCE_DIR}/scripts/cmake/embed.cmake
  DEPENDS ${embedded_files} ${CMAKE_CURRENT_SOURCE_DIR}/scripts/cmake/embed.cmake
  VERBATIM)
add_library(quern_embedded STATIC ${embedded_c})
target_include_directories(quern_embedded PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/runtime)
