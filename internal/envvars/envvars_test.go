package envvars

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

type even int

func (e *even) UnmarshalText(text []byte) error {
	if _, err := fmt.Sscan(string(text), (*int)(e)); err != nil || *e%2 != 0 {
		return fmt.Errorf("not an even number, such as 2")
	}
	return nil
}

type some struct {
	Runs  int           `env:"RUNS" envDefault:"4"`
	Wait  time.Duration `env:"WAIT"`
	Share float64       `env:"SHARE"`
	On    bool          `env:"ON"`
	Pair  even          `env:"PAIR"`
	Net   netip.Prefix  `env:"NET"`
	List  []even        `env:"LIST"`
	Inner struct {
		Runs int64 `env:"INNER_RUNS"`
	}
}

func TestParse(t *testing.T) {
	var s some
	variables, err := Parse(&s, []string{"SALLYPORT_WAIT=90s", "SALLYPORT_RUNS=", "SALLYPORT_LIST=2,4", "SALLYPORT_INNER_RUNS=7", "OTHER=x", "NONE="})
	if err != nil || s.Runs != 4 || s.Wait != 90*time.Second || fmt.Sprint(s.List) != "[2 4]" || s.Inner.Runs != 7 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, has := variables["NONE"]; has || variables["OTHER"] != "x" {
		t.Errorf("variables %v", variables)
	}
}

func TestFaults(t *testing.T) {
	for variable, want := range map[string]string{
		"SALLYPORT_RUNS=four":       `SALLYPORT_RUNS is "four": write a whole number`,
		"SALLYPORT_INNER_RUNS=1.5":  `SALLYPORT_INNER_RUNS is "1.5": write a whole number`,
		"SALLYPORT_WAIT=90":         `SALLYPORT_WAIT is "90": write a time with its unit, such as 90s, 30m or 6h`,
		"SALLYPORT_SHARE=half":      `SALLYPORT_SHARE is "half": write a number, such as 2 or 0.5`,
		"SALLYPORT_ON=yes":          `SALLYPORT_ON is "yes": write true or false`,
		"SALLYPORT_PAIR=3":          `SALLYPORT_PAIR is "3": not an even number, such as 2`,
		"SALLYPORT_LIST=2,3":        `SALLYPORT_LIST is "2,3": not an even number, such as 2`,
		"SALLYPORT_NET=10.0.0.0/99": `SALLYPORT_NET is "10.0.0.0/99": write a network, such as 198.18.0.0/16`,
	} {
		if _, err := Parse(new(some), []string{variable}); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	_, err := Parse(new(some), []string{"SALLYPORT_RUNS=four", "SALLYPORT_ON=yes"})
	if want := "SALLYPORT_RUNS is \"four\": write a whole number\nSALLYPORT_ON is \"yes\": write true or false"; err == nil || err.Error() != want {
		t.Errorf("two faults: %v", err)
	}
}
