package audit

import (
	"bytes"
	"fmt"
	"testing"
)

func BenchmarkAppend(b *testing.B) {
	l := open(b, b.TempDir())
	for i := 0; b.Loop(); i++ {
		appendAll(b, l, i, i+1)
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dir := b.TempDir()
			l := open(b, dir)
			appendAll(b, l, 0, n)
			export := exportOf(b, dir, nil)
			for b.Loop() {
				if _, err := Verify(bytes.NewReader(export), Trust{Keys: []PublicKey{l.Key()}}, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
