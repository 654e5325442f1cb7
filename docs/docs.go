// Package docs holds the pages that programs show. It has no state.
package docs

import _ "embed"

// Guarantees is guarantees.md: tables of promises, what each assumes, and the
// tests that show it.
//
//go:embed guarantees.md
var Guarantees string
