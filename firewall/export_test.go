package firewall

import (
	"iter"
	"net/netip"
)

// AddressRows are the ranges that are refused, each with what it is.
func AddressRows() iter.Seq2[netip.Prefix, string] {
	return func(yield func(netip.Prefix, string) bool) {
		for _, table := range [][]addressRow{refused4, refused6, metadataAddresses} {
			for _, r := range table {
				if !yield(r.prefix, r.what) {
					return
				}
			}
		}
	}
}
