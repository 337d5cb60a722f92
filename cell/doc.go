// Package cell seals a network namespace so that one sandbox can live in it:
// whoever joins the namespace without capabilities reaches the gate's address on
// udp 53 and tcp 53, 80 and 443, and nothing else. Everything else that is sent
// is refused at once rather than lost, so that a client fails instead of hanging.
//
// The bridge without a host address is not enough for that. A process without any
// capability can still set SO_DONTROUTE and SO_BINDTODEVICE, and send to
// broadcast and multicast addresses, and such a datagram reaches a wildcard
// listener of the host. A packet filter in the namespace itself stops it before
// it has left.
//
// The keeper of a cell, Command cell, calls Seal, then Drop, which replaces the
// process by one without any privilege, and that one calls Hold. The namespace
// keeps its filter as long as anyone lives in it, also when the keeper has died.
//
// The host remembers each connection of a cell for minutes, in one table for all. So
// that a sandbox cannot fill it, it sends from a few thousand ports only, those that
// its kernel chooses, and slowly from others; the namespace's own table stays empty.
//
// Limits: the filter trusts the gate's address. It does not look at what is said
// to the gate, which is the gate's own task, and it lets the namespace's processes
// talk to each other over the loopback device.
package cell
