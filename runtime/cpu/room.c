typedef int qn_cpu_room; /* keeps an empty room buildable; goes with the first source file */
