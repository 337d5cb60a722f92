// Package entrypoint is what runs as PID 1 of every sandbox, and the wire
// protocol that it shares with the executor.
//
// The two exchange frames over the sandbox's standard input and output, so a
// backend only has to start the entrypoint and hand over two streams. The
// executor's side is a Session:
//
//	s, err := entrypoint.Open(ctx, sandbox.Stdin(), sandbox.Stdout())
//	...
//	exit, err := s.Run(ctx, job, strings.NewReader(prompt), handlers)
//
// and PID 1 is Main. A job's process gets exactly the environment and the files
// that its job names, descriptors 0 to 2 and nothing else, and when it has ended
// every other process of the sandbox is killed, so that a sandbox can take one
// job after another. When the executor is gone, the sandbox ends by itself.
//
// Neither side trusts the other's bytes. For the executor the sandbox is hostile:
// PID 1 keeps the agent, which has the same user, from its own memory and
// descriptors, but a Session stays bounded and in order whatever arrives. What
// PID 1 reports is believed only as far as the engine's state does not contradict
// it. An agent can still end its own sandbox, by limits that it may set on a
// process of its own user; that is a lost run, never a wider one.
package entrypoint
