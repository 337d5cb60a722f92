package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
)

// docker runs the engine's command line and returns what it prints, trimmed.
func docker(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).Output()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w%s", strings.Join(args, " "), err, complaint(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// complaint is what a program that failed printed to its standard error.
func complaint(err error) string {
	var exit *exec.ExitError
	if !errors.As(err, &exit) || len(exit.Stderr) == 0 {
		return ""
	}
	return "\n" + strings.TrimSpace(string(exit.Stderr))
}

// containers lists the running containers of the stack that have a role.
func (b *bench) containers(ctx context.Context, role string) ([]string, error) {
	out, err := docker(ctx, "ps", "--quiet", "--no-trunc",
		"--filter", "label=org.sallyport.stack="+b.stack, "--filter", "label=org.sallyport.role="+role)
	if err != nil {
		return nil, err
	}
	ids := strings.Fields(out)
	if len(ids) == 0 {
		return nil, fmt.Errorf("the stack %s has no running container of the role %s", b.stack, role)
	}
	return ids, nil
}

// about says what the figures were taken on.
func (b *bench) about(ctx context.Context) (string, error) {
	engine, err := docker(ctx, "info", "--format", "engine {{.ServerVersion}}, {{.OperatingSystem}}, kernel {{.KernelVersion}}")
	if err != nil {
		return "", err
	}
	health, err := b.Health(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("sallyport %s; %s, %d CPUs, %s", health.Version, engine, runtime.NumCPU(), runtime.GOARCH), nil
}
