# The commands that look at kernels; they need NVRTC and no GPU.
if(QUERN_NVRTC_TESTS)
  add_test(NAME cli-look COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/look_case.sh $<TARGET_FILE:quern>
           ${CMAKE_CURRENT_SOURCE_DIR}/data/goldens/quants/llama-mix-Q4_K_M.gguf ${CMAKE_SOURCE_DIR}/model_configs)
  set_tests_properties(cli-look PROPERTIES LABELS cli TIMEOUT ${hang})
endif()
