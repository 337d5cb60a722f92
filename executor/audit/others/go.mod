// Module others has the envelopes of the audit log verified by what cosign verifies them
// with. It is a module of its own so that its dependencies stay out of ours.
module sallyport/executor/audit/others

go 1.26.0

require (
	github.com/secure-systems-lab/go-securesystemslib v0.11.1
	github.com/sigstore/sigstore v1.10.8
	sallyport v0.0.0
)

require (
	github.com/google/go-containerregistry v0.20.7 // indirect
	github.com/in-toto/attestation v1.2.0 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/sigstore/protobuf-specs v0.5.0 // indirect
	github.com/youmark/pkcs8 v0.0.0-20240726163527-a2c0da244d78 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/term v0.47.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20250825161204-c5933d9347a5 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace sallyport => ../../..
