# The commands that look at kernels; they need NVRTC and no GPU.
if(QUERN_NVRTC_TESTS)
  add_test(NAME cli-look COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/look_case.sh $<TARGET_FILE:quern>
           ${CMAKE_CURRENT_SOURCE_DIR}/data/goldens/quants/llama-mix-Q4_K_M.gguf ${CMAKE_SOURCE_DIR}/model_configs)
  set_tests_properties(cli-look PROPERTIES LABELS cli TIMEOUT ${hang})
  # Of each kind of product one: f32, f16 and quantised weights.
  set(models ${CMAKE_CURRENT_SOURCE_DIR}/data/goldens/quants/llama-mix-Q4_K_M.gguf)
  foreach(name llama qwen3 gemma3 starcoder2)
    list(APPEND models ${CMAKE_BINARY_DIR}/goldens/archs/${name}.gguf)
  endforeach()
  add_test(NAME persistent-turns COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools/persistent_turns.py
                                         $<TARGET_FILE:quern> ${models})
  set_tests_properties(persistent-turns PROPERTIES LABELS cli TIMEOUT ${hang} FIXTURES_REQUIRED golden-models)
endif()
