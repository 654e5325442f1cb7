package fence_test

import (
	"context"
	"fmt"

	"github.com/coordd/coord/fence"
)

// A worker took the lock with token 33, was paused, and lost it to one with 34.
func ExampleGate() {
	ctx := context.Background()
	var printer fence.Gate
	fmt.Println(printer.Admit(ctx, "printer", 33))
	fmt.Println(printer.Admit(ctx, "printer", 34))
	fmt.Println(printer.Admit(ctx, "printer", 33))
	// Output:
	// <nil>
	// <nil>
	// fence: stale token for "printer": 33 < 34, a newer holder has been here
}
