# Micro benchmarks: built on request (cmake --build build --target bench_matmul), not run by ctest.
add_executable(bench_matmul EXCLUDE_FROM_ALL ${CMAKE_CURRENT_SOURCE_DIR}/bench_matmul.c)
target_link_libraries(bench_matmul PRIVATE room_cpu)
