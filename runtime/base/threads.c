#include "base/threads.h"
