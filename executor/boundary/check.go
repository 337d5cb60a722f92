package boundary

import (
	"context"
	"fmt"
	"sallyport/executor/api"
	"time"
)

// Check makes one proof. The error says why there is none; a report says whether
// every probe was held, and which were not. Once Background is done nothing of the
// check is left, or the log says what.
func (c *Checker) Check(ctx context.Context) (_ api.BoundaryReport, err error) {
	began := time.Now()
	defer func() {
		if err != nil {
			err = fmt.Errorf("boundary check: %w", err)
		}
	}()
	if err := c.check(); err != nil {
		return api.BoundaryReport{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	saw, engine, err := c.observe(ctx)
	if err != nil {
		return api.BoundaryReport{}, err
	}
	findings, err := saw.judge()
	if err != nil {
		return api.BoundaryReport{}, err
	}
	report := api.BoundaryReport{Passed: true, Engine: engine, CheckedAt: began.UTC(), Findings: findings}
	report.Warnings = tooSmall(saw.host, c.Need)
	for _, f := range findings {
		report.Passed = report.Passed && f.Passed
	}
	c.Log.Debug("boundary checked", "passed", report.Passed, "ms", time.Since(began).Milliseconds())
	return report, nil
}

// observe sets the scene, has everything tried, and leaves the scene to be taken apart.
func (c *Checker) observe(ctx context.Context) (*observation, string, error) {
	s := &scene{Checker: c, nonce: nonce()}
	defer c.Background.Go(func() {
		if err := s.remove(ctx); err != nil {
			c.Log.Warn("a boundary check has left something behind", "error", err)
		}
	})
	if err := s.build(ctx); err != nil {
		return nil, "", err
	}
	saw, err := s.observe(ctx)
	return saw, s.engine, err
}
