// Package version says which build of sallyport a program is.
package version

import "runtime/debug"

// linked is set by the linker: -X sallyport/internal/version.linked=...
var linked string

// String is the version that the linker set, else that of the module in the
// build's own information, else "unknown".
func String() string {
	if linked != "" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
