package main

import "unsafe"

var pinned [][]byte

// pointer is the address of b, which is never collected.
func pointer(b []byte) uintptr {
	b = append(make([]byte, 0, 64), b...)[:len(b):64]
	pinned = append(pinned, b)
	return uintptr(unsafe.Pointer(&b[0]))
}
