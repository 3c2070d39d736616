#include <stdio.h>
#include <string.h>

static int is_prime(int n) {
  for (int d = 2; d * d <= n; d++)
    if (n % d == 0) return 0;
  return n > 1;
}

int main(void) {
  char line[16];
  for (int n = 0; n < 100; n++)
    if (is_prime(n)) {
      snprintf(line, sizeof line, "%d", n);
      printf("%s has %zu digits\n", line, strlen(line));
    }
  return 0;
}
