package tied

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// A child outlives the threads that come and go in this process.
func TestChildOutlivesThreads(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		started <- Start(cmd, syscall.SIGKILL)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	for range 20 {
		done := make(chan struct{})
		go func() { runtime.LockOSThread(); close(done) }()
		<-done
	}
	time.Sleep(50 * time.Millisecond)
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the child has ended: %v", err)
	}
	if pgid, err := syscall.Getpgid(cmd.Process.Pid); err != nil || pgid != cmd.Process.Pid {
		t.Errorf("process group %d of %d, %v", pgid, cmd.Process.Pid, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// A child ends with its parent, also by kill -9.
func TestChildEndsWithItsParent(t *testing.T) {
	const env = "TIED_TEST_PARENT"
	if os.Getenv(env) != "" {
		cmd := exec.Command("sleep", "60")
		if err := Start(cmd, syscall.SIGKILL); err != nil {
			panic(err)
		}
		os.Stdout.WriteString(strconv.Itoa(cmd.Process.Pid) + "\n")
		select {}
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestChildEndsWithItsParent$")
	parent.Env = append(os.Environ(), env+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(line[:len(line)-1])
	if err != nil {
		t.Fatal(err)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if gone(pid) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d lives on", pid)
		}
	}
}

// gone says that a process has ended; it may be a zombie until init has seen it.
func gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	for i := len(stat) - 1; i > 0; i-- {
		if stat[i] == ')' {
			return i+2 < len(stat) && stat[i+2] == 'Z'
		}
	}
	return false
}
