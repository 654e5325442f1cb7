package tied

import "syscall"

func tie(a *syscall.SysProcAttr, whenWeEnd syscall.Signal) { a.Pdeathsig = whenWeEnd }
