package files

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"sallyport/entrypoint/wire"
)

// systemBundles are where distributions keep the CA certificates that they
// trust; the first that exists is used.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine
	"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora
}

// maxBundle bounds the system's bundle in bytes.
const maxBundle = 16 << 20

// WriteCA writes the system's CA certificates and the extra ones to
// wire.CABundlePath. Anything but certificates in extra is refused: a key that was
// put there by mistake must not reach a sandbox.
func WriteCA(extra []byte) error {
	bundle, err := systemBundle()
	if err != nil {
		return err
	}
	count := 0
	for rest := extra; ; count++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("the extra CA certificates hold a PEM block of type %.64q", block.Type)
		}
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	if count == 0 {
		return errors.New("the extra CA certificates hold no PEM block")
	}
	return Write(wire.CABundlePath, 0o644, bundle)
}

// systemBundle reads the system's bundle; none is not an error.
func systemBundle() ([]byte, error) {
	for _, name := range systemBundles {
		info, err := os.Stat(name)
		if err != nil {
			continue
		}
		if info.Size() > maxBundle {
			return nil, fmt.Errorf("the system's CA bundle %s has %d bytes, more than %d", name, info.Size(), maxBundle)
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read the system's CA bundle: %w", err)
		}
		return append(bytes.TrimRight(b, "\n"), '\n'), nil
	}
	return nil, nil
}
