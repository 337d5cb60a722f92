package entrypoint

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// systemBundles are where distributions keep the CA certificates that they
// trust; the first that exists is used.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine
	"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora
}

// maxBundle bounds the system's bundle in bytes.
const maxBundle = 16 << 20

// writeFile puts a file in place of whatever has its name, in one step and
// without following a symbolic link, so that what an earlier job left there
// cannot lead the content elsewhere. Missing directories are made. The kernel's
// permissions decide what can be written. Errors name the file.
func writeFile(name string, mode uint32, content []byte) error {
	if err := placeFile(name, mode, content); err != nil {
		return fmt.Errorf("write the file %q: %w", name, err)
	}
	return nil
}

func placeFile(name string, mode uint32, content []byte) error {
	if mode == 0 {
		mode = 0o600
	}
	if mode&^0o777 != 0 {
		return fmt.Errorf("mode %#o has more than permission bits", mode)
	}
	if !path.IsAbs(name) || path.Clean(name) != name || name == "/" || strings.ContainsRune(name, 0) {
		return errors.New("its path is not absolute and clean")
	}
	dir, base := path.Split(name)
	fd, err := openDirs(dir)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	temporary := fmt.Sprintf(".sallyport-%016x", rand.Uint64())
	if err := createAt(fd, temporary, mode, content); err != nil {
		return err
	}
	if err := unix.Renameat(fd, temporary, fd, base); err != nil {
		unix.Unlinkat(fd, temporary, 0)
		return fmt.Errorf("put it in its place: %w", err)
	}
	return nil
}

// openDirs opens an absolute directory step by step and makes what is missing.
func openDirs(dir string) (int, error) {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open /: %w", err)
	}
	for step := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if step == "" {
			continue
		}
		next, err := openDirAt(fd, step)
		unix.Close(fd)
		if err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

func openDirAt(fd int, step string) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	next, err := unix.Openat(fd, step, flags, 0)
	if errors.Is(err, unix.ENOENT) {
		if err := unix.Mkdirat(fd, step, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, fmt.Errorf("make the directory %q: %w", step, err)
		}
		next, err = unix.Openat(fd, step, flags, 0)
	}
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return -1, fmt.Errorf("%q on its way is a symbolic link or no directory", step)
	}
	if err != nil {
		return -1, fmt.Errorf("open the directory %q: %w", step, err)
	}
	return next, nil
}

func createAt(dir int, name string, mode uint32, content []byte) (err error) {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("create it: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			unix.Unlinkat(dir, name, 0)
		}
	}()
	if _, err := f.Write(content); err != nil {
		return fmt.Errorf("fill it: %w", err)
	}
	return f.Chmod(os.FileMode(mode)) // the umask must not matter
}

// writeBundle writes the system's CA certificates and the extra ones to
// CABundlePath. Anything but certificates in extra is refused: a key that was
// put there by mistake must not reach a sandbox.
func writeBundle(extra []byte) error {
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
	return writeFile(CABundlePath, 0o644, bundle)
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

// findProgram resolves argv[0] as execvp(3) does, by the PATH of the job's own
// environment.
func findProgram(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	var dirs string
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			dirs = v
		}
	}
	if dirs == "" {
		return "", fmt.Errorf("find the program %q: the job's environment has no PATH", name)
	}
	for dir := range strings.SplitSeq(dirs, ":") {
		if !path.IsAbs(dir) {
			continue // a directory that the agent may choose is no place for programs
		}
		candidate := path.Join(dir, name)
		info, err := os.Stat(candidate)
		if err == nil && info.Mode().IsRegular() && unix.Access(candidate, unix.X_OK) == nil {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("find the program %q: it is not in PATH %q", name, dirs)
}
