# ISA-specific sources of runtime/cpu are named *_avx2.c and *_avx512.c and chosen at run time. Elsewhere than on
# x86-64 they compile to nothing.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  file(GLOB avx2 CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/runtime/cpu/*_avx2.c)
  file(GLOB avx512 CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/runtime/cpu/*_avx512.c)
  set_source_files_properties(${avx2} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;-O3")
  set_source_files_properties(${avx512} PROPERTIES COMPILE_OPTIONS
    "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni;-O3")
endif()
# Their plain C counterparts: loops that only -O3 vectorises.
file(GLOB portable CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/runtime/cpu/*_portable.c)
set_source_files_properties(${portable} PROPERTIES COMPILE_OPTIONS "-O3")
